"""The brokers that are asked: releases of Apache Kafka, and ours.

Each has a listener without authentication, whose clients may do everything, and one with users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.api_versions import ApiVersionsRequest
from tests.clients.access.users import JAAS, USERS, make_rules
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4
from tests.support.secured import authenticate, shake
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from pathlib import Path

RELEASES = {"3.9.1": KAFKA_3_9, "4.3.1": KAFKA_4}
USERS_LISTENER = "SASL_PLAINTEXT"

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    f"listener.name.{USERS_LISTENER.lower()}.plain.sasl.jaas.config": JAAS,
    "auto.create.topics.enable": "true",
    "num.partitions": "1",
    "delete.topic.enable": "true",
}


class KafkaWithUsers(KafkaProcess):
    """Apache Kafka with a second listener."""

    def __init__(self, folder: Path, release: str) -> None:
        super().__init__(folder, settings=SETTINGS, release=RELEASES[release])
        self.users_port = free_port()

    def properties(self) -> dict[str, str]:
        found = super().properties()
        users = f"{USERS_LISTENER}://{self.host}:{self.users_port}"
        for key in ("listeners", "advertised.listeners"):
            found[key] += f",{users}"
        found["listener.security.protocol.map"] += f",{USERS_LISTENER}:{USERS_LISTENER}"
        return found


class BrokerWithUsers(BrokerProcess):
    """Ours."""

    def __init__(self, folder: Path) -> None:
        self.open_port, self.users_port = free_port(), free_port()
        listeners = (
            f"PLAINTEXT://{self.host}:{self.open_port},"
            f"{USERS_LISTENER}://{self.host}:{self.users_port}"
        )
        super().__init__(folder, settings={**SETTINGS, "listeners": listeners})

    def _ready(self, line: object) -> None:
        self.port = self.open_port


Server = KafkaWithUsers | BrokerWithUsers


def connect_as(user: str, server: Server) -> Caller:
    client = Caller(server.host, server.users_port, timeout_s=60)
    assert shake(client, "PLAIN").error_code == 0
    answer = authenticate(client, f"\0{user}\0{user}-secret".encode())
    assert answer.error_code == 0, answer.error_message
    return client


class Clients:
    """A connection of the administrator, and one of every user."""

    def __init__(self, server: Server) -> None:
        self.administrator = Caller(server.host, server.port, timeout_s=60)
        make_rules(self.administrator)
        self.users = {user: connect_as(user, server) for user in USERS}
        answer = self.administrator.call(ApiVersionsRequest(), 0)
        self.offered = {
            one.api_key: range(one.min_version, one.max_version + 1) for one in answer.api_keys
        }

    def close(self) -> None:
        for client in (self.administrator, *self.users.values()):
            client.close()
