"""The brokers that judge tokens: releases of Apache Kafka, and ours, with the same keys.

Each has a listener for every way to judge, and sessions of at most a minute, so that a client may
authenticate again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.clients.bearer.tokens import KEYS
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4
from tests.support.server_process import free_port
from tests.support.tokens import key_set

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka_release import Release

RELEASES = {"3.9.1": KAFKA_3_9, "4.3.1": KAFKA_4}

OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer."
VALIDATOR = f"{OAUTHBEARER}OAuthBearerValidatorCallbackHandler"
UNSECURED_VALIDATOR = (
    f"{OAUTHBEARER}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed"

PLAIN = "PLAINTEXT"
WAYS: dict[str, dict[str, str]] = {
    "ANY": {},
    "STRICT": {
        "sasl.oauthbearer.expected.audience": "kafka,lake",
        "sasl.oauthbearer.expected.issuer": "us",
        "sasl.oauthbearer.clock.skew.seconds": "0",
    },
    "NAMED": {
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.sub.claim.name": "user",
        "sasl.oauthbearer.scope.claim.name": "scp",
    },
    "UNSECURED": {"sasl.server.callback.handler.class": UNSECURED_VALIDATOR},
}
"""What is set for each listener beside the keys."""
PROTOCOLS = ",".join(f"{name}:SASL_PLAINTEXT" for name in WAYS)


def settings(keys: Path) -> dict[str, str]:
    found = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "10",
    }
    for name, way in WAYS.items():
        given = {
            "sasl.jaas.config": f"{OAUTHBEARER}OAuthBearerLoginModule required;",
            "sasl.server.callback.handler.class": VALIDATOR,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "connections.max.reauth.ms": "60000",
            **way,
        }
        prefix = f"listener.name.{name.lower()}.oauthbearer."
        found |= {prefix + key: value for key, value in given.items()}
    return found


def write_keys(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    keys = folder / "keys.json"
    keys.write_bytes(key_set(KEYS))
    return keys


class KafkaWithTokens(KafkaProcess):
    """Apache Kafka."""

    def __init__(self, folder: Path, release: str) -> None:
        self.keys = write_keys(folder)
        super().__init__(folder, settings=settings(self.keys), release=RELEASES[release])
        self.ports = {name: free_port() for name in WAYS}

    def become(self, release: Release) -> None:
        super().become(release)
        java, *words = self._command
        allowed = (f"-D{ALLOWED}.urls={self.keys.as_uri()}", f"-D{ALLOWED}.files={self.keys}")
        self._command = [java, *allowed, *words]

    def properties(self) -> dict[str, str]:
        found = super().properties()
        for name, port in self.ports.items():
            for key in ("listeners", "advertised.listeners"):
                found[key] += f",{name}://{self.host}:{port}"
        found["listener.security.protocol.map"] += f",{PROTOCOLS}"
        return found


class BrokerWithTokens(BrokerProcess):
    """Ours."""

    def __init__(self, folder: Path) -> None:
        self.ports = {name: free_port() for name in WAYS}
        plain = free_port()
        listeners = [f"{PLAIN}://{self.host}:{plain}"]
        listeners += [f"{name}://{self.host}:{port}" for name, port in self.ports.items()]
        given = {
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{PROTOCOLS}",
        }
        super().__init__(folder / "data", settings=settings(write_keys(folder)) | given)
        self._plain = plain

    def _ready(self, line: object) -> None:
        self.port = self._plain


Server = KafkaWithTokens | BrokerWithTokens
