"""Apache Kafka's command line tools at a closed broker: SASL_SSL, SCRAM-SHA-512 and rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.support.certificates import PASSWORD
from tests.support.fetched import NotAvailable
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4, Release
from tests.support.kafka_tools import run_tool
from tests.support.secured import USERS, SecuredBroker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka_tools import Ended

pytestmark = [
    pytest.mark.long,
    pytest.mark.clients,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

TOOLS = "org.apache.kafka.tools."
ACLS = {"3.9": "kafka.admin.AclCommand"}
PRODUCER = {"3.9": "kafka.tools.ConsoleProducer"}
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice;User:ANONYMOUS",
}


class Shell:
    """Somebody who types the tools of a release as alice, who may do everything, or as bob."""

    def __init__(self, release: Release, broker: SecuredBroker, folder: Path) -> None:
        self._release = release
        self._folder = folder
        self._bootstrap = ("--bootstrap-server", broker.bootstrap_of("SASL_SSL"))
        for user, password in USERS.items():
            (folder / f"{user}.properties").write_text(
                "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
                "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{user}" password="{password}";\n'
                f"ssl.truststore.location={broker.authority.truststore}\n"
                f"ssl.truststore.password={PASSWORD}\nssl.truststore.type=PKCS12\n"
            )

    def type(
        self, user: str, tool: str, *words: str, typed: str = "", config: str = "--command-config"
    ) -> Ended:
        given = (*self._bootstrap, config, f"{user}.properties", *words)
        return run_tool(self._release, tool, *given, folder=self._folder, typed=typed)

    def told(self, user: str, tool: str, *words: str) -> str:
        """What the tool prints; it has to end well."""
        ended = self.type(user, tool, *words)
        assert ended.code == 0, (words, ended)
        assert "Error" not in ended.out + ended.err, (words, ended)
        return ended.out


@pytest.mark.parametrize(
    "release", [pytest.param(one, id=one.name) for one in (KAFKA_3_9, KAFKA_4)]
)
def test_kafkas_tools_administer_and_use_a_closed_broker(tmp_path: Path, release: Release) -> None:
    topics, groups = f"{TOOLS}TopicCommand", f"{TOOLS}consumer.group.ConsumerGroupCommand"
    configs, acls = "kafka.admin.ConfigCommand", ACLS.get(release.name, f"{TOOLS}AclCommand")
    producer = PRODUCER.get(release.name, f"{TOOLS}ConsoleProducer")
    with SecuredBroker(tmp_path, settings=SETTINGS) as broker:
        broker.add_scram_users()
        shell = Shell(release, broker, tmp_path)
        try:
            shell.told("alice", topics, "--create", "--topic", "orders", "--partitions", "2")
        except NotAvailable as reason:
            end_of_test("java", str(reason))

        denied = shell.type("bob", topics, "--create", "--topic", "mine")
        assert denied.code == 1
        assert "Authorization failed" in denied.out + denied.err
        assert shell.told("bob", topics, "--list").split() == []

        allow = ("--add", "--allow-principal", "User:bob", "--topic", "orders")
        shell.told("alice", acls, *allow, "--producer")
        shell.told("alice", acls, *allow, "--consumer", "--group", "bobs")
        assert "User:bob" in shell.told("alice", acls, "--list", "--topic", "orders")
        assert shell.told("bob", topics, "--list").split() == ["orders"]

        sent = shell.type(
            *("bob", producer, "--topic", "orders"), typed="one\ntwo\n", config="--producer.config"
        )
        assert sent.code == 0, sent
        read = shell.type(
            *("bob", f"{TOOLS}consumer.ConsoleConsumer", "--topic", "orders", "--group", "bobs"),
            *("--from-beginning", "--max-messages", "2", "--timeout-ms", "30000"),
            config="--consumer.config",
        )
        assert sorted(read.out.split()[-2:]) == ["one", "two"], read
        assert "orders" in shell.told("bob", groups, "--describe", "--group", "bobs")
        ends = shell.told("bob", f"{TOOLS}GetOffsetShell", "--topic", "orders").split()
        assert sum(int(one.rsplit(":", 1)[1]) for one in ends) == 2

        user = ("--entity-type", "users", "--entity-name", "bob")
        shell.told(
            "alice", configs, "--alter", *user, "--add-config", "SCRAM-SHA-256=[password=another]"
        )
        shell.told("alice", configs, "--alter", *user, "--add-config", "producer_byte_rate=1000000")
        described = shell.told("alice", configs, "--describe", *user)
        assert "SCRAM-SHA-256=iterations=" in described
        assert "producer_byte_rate" in described
        assert shell.type("bob", configs, "--alter", *user, "--add-config", "x=1").code == 1

        quorum = f"{TOOLS}MetadataQuorumCommand"
        assert "LeaderId:" in shell.told("alice", quorum, "describe", "--status")
        assert shell.type("bob", quorum, "describe", "--status").code == 1
        shell.told("alice", f"{TOOLS}TransactionsCommand", "list")
        assert "Traceback" not in broker.output()
