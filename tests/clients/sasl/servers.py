"""The brokers that the scripts are told to: releases of Apache Kafka, and ours.

Each has a listener without authentication and three with it: sessions of one last for ever, of
another a minute, of the third so short that they end while somebody waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.administrator import SHA_256, SHA_512, Administrator
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4
from tests.support.secured import HASHES, ITERATIONS, JAAS, USERS, salted_password
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from pathlib import Path

RELEASES = {"3.9.1": KAFKA_3_9, "4.3.1": KAFKA_4}
OURS = "triglot"

OPEN, LASTING, MINUTE, SHORT = "PLAINTEXT", "LASTING", "MINUTE", "SHORT"
SESSIONS_MS = {LASTING: 0, MINUTE: 60_000, SHORT: 300}
PAST_SHORT_S = 0.5
"""After so long a session of `SHORT` is over."""
SALT = b"salt of "
"""How the salts begin that `Administrator` gives to users."""
MECHANISMS = ("PLAIN", *HASHES)
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def settings() -> dict[str, str]:
    """The same for every broker."""
    found = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connection.failed.authentication.delay.ms": "10",
    }
    for listener, session_ms in SESSIONS_MS.items():
        for mechanism in MECHANISMS:
            key = f"listener.name.{listener.lower()}.{mechanism.lower()}"
            jaas = f"{JAAS};" if mechanism == "PLAIN" else SCRAM_JAAS
            found[f"{key}.sasl.jaas.config"] = jaas
            if session_ms:
                found[f"{key}.connections.max.reauth.ms"] = str(session_ms)
    return found


PROTOCOLS = ",".join(
    ["PLAINTEXT:PLAINTEXT", *(f"{listener}:SASL_PLAINTEXT" for listener in SESSIONS_MS)]
)


class KafkaWithSasl(KafkaProcess):
    """Apache Kafka."""

    def __init__(self, folder: Path, release: str) -> None:
        super().__init__(folder, settings=settings(), release=RELEASES[release])
        self.ports = {listener: free_port() for listener in SESSIONS_MS}

    def properties(self) -> dict[str, str]:
        found = super().properties()
        for listener, port in self.ports.items():
            for key in ("listeners", "advertised.listeners"):
                found[key] += f",{listener}://{self.host}:{port}"
        found["listener.security.protocol.map"] = f"CONTROLLER:PLAINTEXT,{PROTOCOLS}"
        self.ports[OPEN] = self.port
        return found


class BrokerWithSasl(BrokerProcess):
    """Ours."""

    def __init__(self, folder: Path) -> None:
        self.ports = {listener: free_port() for listener in (OPEN, *SESSIONS_MS)}
        listeners = ",".join(
            f"{listener}://{self.host}:{port}" for listener, port in self.ports.items()
        )
        given = {"listeners": listeners, "listener.security.protocol.map": PROTOCOLS}
        super().__init__(folder, settings=settings() | given)

    def _ready(self, line: object) -> None:
        self.port = self.ports[OPEN]


Server = KafkaWithSasl | BrokerWithSasl


def add_users(server: Server) -> None:
    """The users of SCRAM, with both hashes."""
    with Administrator(server.host, server.ports[OPEN], timeout_s=30) as admin:
        for user, password in USERS.items():
            for name, number in (("SCRAM-SHA-256", SHA_256), ("SCRAM-SHA-512", SHA_512)):
                salt = SALT + user.encode()
                salted = salted_password(name, password, salt, ITERATIONS)
                admin.set_password(user, number, salted)
