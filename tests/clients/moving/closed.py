"""Brokers with users, rules and quotas, and clients that go through their doors.

Each has a listener without authentication, whose clients may do everything, and one with SCRAM.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tests.clients.available import end_of_test
from tests.clients.moving.kafka import SETTINGS
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.secured import HASHES, ScramClient, authenticate, shake
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.support.kafka_release import Release

USERS_LISTENER = "SASL_PLAINTEXT"
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
CLOSED = {
    **SETTINGS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "sasl.enabled.mechanisms": ",".join(HASHES),
    **{
        f"listener.name.{USERS_LISTENER.lower()}.{name.lower()}.sasl.jaas.config": SCRAM_JAAS
        for name in HASHES
    },
}


class ClosedKafka(KafkaProcess):
    """Apache Kafka. Ends the test where there is none."""

    def __init__(
        self,
        folder: Path,
        logs: Path,
        release: Release,
        *,
        settings: Mapping[str, str],
        format: Sequence[str] = (),
    ) -> None:
        try:
            super().__init__(
                folder, settings={**CLOSED, **settings}, logs=logs, release=release, format=format
            )
        except NotAvailable as reason:
            end_of_test("java", str(reason))
        self.users_port = free_port()

    def properties(self) -> dict[str, str]:
        found = super().properties()
        for key in ("listeners", "advertised.listeners"):
            found[key] += f",{USERS_LISTENER}://{self.host}:{self.users_port}"
        found["listener.security.protocol.map"] += f",{USERS_LISTENER}:{USERS_LISTENER}"
        return found


class ClosedBroker(BrokerProcess):
    """Ours, on the ports of another one that has ended, or on free ones."""

    def __init__(
        self, data: Path, *, settings: Mapping[str, str], ports_of: ClosedKafka | None = None
    ) -> None:
        self.open_port = ports_of.port if ports_of else free_port()
        self.users_port = ports_of.users_port if ports_of else free_port()
        listeners = (
            f"PLAINTEXT://{self.host}:{self.open_port},"
            f"{USERS_LISTENER}://{self.host}:{self.users_port}"
        )
        super().__init__(data, settings={**CLOSED, **settings, "listeners": listeners})

    def _ready(self, line: object) -> None:
        self.port = self.open_port


Server = ClosedKafka | ClosedBroker


class CallerFrom(Caller):
    """A client of this machine with another address."""

    def __init__(self, address: str, host: str, port: int) -> None:
        super().__init__(host, port)
        self.socket.close()
        self.socket = socket.create_connection((host, port), 30, source_address=(address, 0))


def log_in(client: Caller, mechanism: str, user: str, password: str) -> None:
    """Authenticate by SCRAM; the broker has to take it."""
    scram = ScramClient(mechanism, user, password)
    assert shake(client, mechanism).error_code == 0
    answer = authenticate(client, scram.first())
    assert answer.error_code == 0, answer.error_message
    answer = authenticate(client, scram.final(bytes(answer.auth_bytes)))
    assert answer.error_code == 0, answer.error_message
    assert scram.is_from_the_server(bytes(answer.auth_bytes))
