"""A controller's listener that asks for SASL: observers and Kafka's tools log in there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from protocol.messages.describe_quorum import DescribeQuorumRequest
from tests.clients.available import end_of_test
from tests.support.caller import Caller
from tests.support.certificates import PASSWORD
from tests.support.fetched import NotAvailable
from tests.support.kafka_release import KAFKA_4
from tests.support.kafka_tools import run_tool
from tests.support.secured import JAAS, USERS, SecuredBroker, authenticate, shake
from tests.support.server_process import ServerFailed, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.clients

QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
ACL_TOOL = "org.apache.kafka.tools.AclCommand"
CONTROLLER = "CONTROLLER_SSL"
USERS_OF_PLAIN = "listener.name.controller_ssl.plain.sasl.jaas.config"


class SecuredNode(SecuredBroker):
    """Its controller's listener speaks SASL_SSL. alice may do everything."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ports[CONTROLLER] = free_port()
        protocols = {name: name for name in self.ports} | {CONTROLLER: "SASL_SSL"}
        self.settings = {
            **self.settings,
            "listeners": ",".join(f"{name}://{self.host}:{self.ports[name]}" for name in protocols),
            "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
            "controller.listener.names": CONTROLLER,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:alice;User:ANONYMOUS",
            USERS_OF_PLAIN: f"{JAAS};",
            "connections.max.reauth.ms": "60000",
        }


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode(tmp_path_factory.mktemp("node")) as node:
        node.add_scram_users()
        yield node
        assert "Traceback" not in node.output()


def properties_of(node: SecuredNode, folder: Path, user: str, password: str) -> str:
    file = folder / f"{user}.properties"
    file.touch(mode=0o600)
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{password}";\n'
        f"ssl.truststore.location={node.authority.truststore}\n"
        f"ssl.truststore.password={PASSWORD}\nssl.truststore.type=PKCS12\n"
    )
    return str(file)


def follow(node: SecuredNode, *how: str) -> subprocess.CompletedProcess[str]:
    words = ("metadata", "follow", node.bootstrap_of(CONTROLLER), "--json", "--once")
    return subprocess.run(
        [sys.executable, "-m", "tools", *words, *how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_observer_that_logs_in_follows(node: SecuredNode, tmp_path: Path) -> None:
    with Caller(node.host, node.ports["PLAINTEXT"]) as caller:
        caller.create_topic("followed", partitions=1)

    ended = follow(node, "--command-config", properties_of(node, tmp_path, *user("alice")))

    assert ended.returncode == 0, ended
    assert "followed" in json.dumps(json.loads(ended.stdout))


@pytest.mark.parametrize(
    ("name", "password", "said"),
    [("bob", "bob-secret", "CLUSTER_AUTHORIZATION_FAILED"), ("alice", "wrong", "Authentication")],
)
def test_an_observer_without_a_right_or_a_password_is_refused(
    node: SecuredNode, tmp_path: Path, name: str, password: str, said: str
) -> None:
    ended = follow(node, "--command-config", properties_of(node, tmp_path, name, password))

    assert ended.returncode == 1
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_nothing_is_told_before_somebody_has_logged_in_and_one_may_log_in_again(
    node: SecuredNode,
) -> None:
    request = DescribeQuorumRequest(topics=[])
    with node.connect(CONTROLLER) as unknown:
        unknown.send(request)
        assert unknown.closed_by_server()
    with node.connect(CONTROLLER) as client:
        for _ in range(2):
            assert shake(client, "PLAIN").error_code == 0
            assert authenticate(client, b"\0alice\0alice-secret").error_code == 0
            assert client.call(request).error_code == 0


def test_a_listener_of_the_controller_without_keys_stops_the_start(tmp_path: Path) -> None:
    node = SecuredNode(tmp_path)
    del node.settings[USERS_OF_PLAIN]
    with pytest.raises(ServerFailed, match=f"{USERS_OF_PLAIN}: is missing"):
        node.start()


@pytest.mark.long
@pytest.mark.java
def test_kafkas_tools_log_in_at_the_controller(node: SecuredNode, tmp_path: Path) -> None:
    where = ("--bootstrap-controller", node.bootstrap_of(CONTROLLER), "--command-config")
    alice = properties_of(node, tmp_path, *user("alice"))
    try:
        status = run_tool(
            KAFKA_4, QUORUM_TOOL, *where, alice, "describe", "--status", folder=tmp_path
        )
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    rules = ("--add", "--allow-principal", "User:bob", "--operation", "Describe", "--cluster")
    added = run_tool(KAFKA_4, ACL_TOOL, *where, alice, *rules, folder=tmp_path)
    wrong = properties_of(node, tmp_path, "bob", "wrong")
    refused = run_tool(KAFKA_4, QUORUM_TOOL, *where, wrong, "describe", "--status", folder=tmp_path)

    assert re.search(r"^LeaderId: +1$", status.out, re.MULTILINE), status
    assert added.code == 0, added
    assert "User:bob" in added.out
    assert refused.code != 0
    assert "invalid credentials" in refused.out + refused.err + refused.logged


def user(name: str) -> tuple[str, str]:
    return name, USERS[name]
