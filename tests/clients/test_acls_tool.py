"""Apache Kafka's kafka-acls makes, shows and removes the rules of a broker of ours, as a user who
comes in by SASL; and a producer of Kafka's is let in by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from config.jaas import PLAIN_LOGIN_MODULE
from protocol.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.create_acls import CreateAclsRequest
from tests.clients.access.servers import BrokerWithUsers, connect_as
from tests.clients.available import end_of_test
from tests.support.caller import Caller, batch
from tests.support.fetched import NotAvailable
from tests.support.kafka_release import RELEASES, Release
from tests.support.kafka_tools import run_tool

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java]

ADMINISTRATOR, USER = "all", "none"
ACLS = {"3.9": "kafka.admin.AclCommand", "4": "org.apache.kafka.tools.AclCommand"}


def _client_properties(folder: Path, user: str) -> Path:
    path = folder / f"{user}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={PLAIN_LOGIN_MODULE} required "
        f'username="{user}" password="{user}-secret";\n'
    )
    return path


@pytest.mark.parametrize("release", [pytest.param(one, id=one.name) for one in RELEASES])
def test_kafka_acls_does_its_work(tmp_path: Path, release: Release) -> None:
    folder = tmp_path / "tool"
    folder.mkdir()
    with BrokerWithUsers(tmp_path / "data") as broker:
        bootstrap = ("--bootstrap-server", f"{broker.host}:{broker.users_port}")

        def run(*words: str, user: str = ADMINISTRATOR) -> str:
            config = ("--command-config", str(_client_properties(folder, user)))
            try:
                words = (*bootstrap, *config, *words)
                ended = run_tool(release, ACLS[release.name], *words, folder=folder)
            except NotAvailable as reason:
                end_of_test("java", str(reason))
            return ended.out + ended.err

        def produced() -> int:
            with connect_as(USER, broker) as client:
                code: int = client.produce("orders", batch(b"v")).error_code
                return code

        with Caller(broker.host, broker.port) as super_user:
            super_user.create_topic("orders")
            _allow_all_of_the_cluster(super_user)
        assert "Cluster authorization failed" in run("--list", user=USER)
        who = f"User:{USER}"
        assert produced() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        denied = ("--deny-principal", who, "--operation", "Write", "--topic", "orders")
        prefixed = ("--topic", "ord", "--resource-pattern-type", "prefixed")
        told = run("--add", "--allow-principal", who, "--producer", *prefixed)
        assert "operation=WRITE" in told
        assert produced() == ErrorCode.NONE
        run("--add", *denied)
        assert produced() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        told = run("--list", "--topic", "orders", "--resource-pattern-type", "match")
        assert "patternType=PREFIXED" in told
        assert "permissionType=DENY" in told
        run("--remove", "--force", *denied)
        assert produced() == ErrorCode.NONE
        run("--remove", "--force", *prefixed)
        assert "patternType=PREFIXED" not in run("--list")
        assert produced() == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _allow_all_of_the_cluster(super_user: Caller) -> None:
    """The administrator has its rights by a rule, too."""
    rule = CreateAclsRequest.Creation(
        resource_type=ResourceType.CLUSTER,
        resource_name=CLUSTER_NAME,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{ADMINISTRATOR}",
        host="*",
        operation=Operation.ALL,
        permission_type=Permission.ALLOW,
    )
    (made,) = super_user.call(CreateAclsRequest(creations=[rule])).results
    assert made.error_code == ErrorCode.NONE
