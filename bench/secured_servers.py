"""Brokers with doors of each kind on loopback: PLAINTEXT, TLS 1.3, SASL; certificates of P-256."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench.kafka_peer import Kafka
from bench.servers import Started, Triglot
from tests.support.certificates import Authority
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

USER, PASSWORD = "alice", "alice-secret"
MECHANISM = "SCRAM-SHA-512"
DOORS = ("SSL", "SASL_PLAINTEXT")


class Secured(Started):
    """What both have: `ports` by the name of the door, and the authority of their certificate."""

    ports: dict[str, int]
    authority: Authority

    def _make_doors(self) -> None:
        folder = self.data.parent / f"{self.data.name}-certificates"
        folder.mkdir(exist_ok=True)
        self.authority = Authority(folder)
        self._certificate = self.authority.issue("broker")
        self.ports = {door: free_port() for door in DOORS}

    def _doors(self) -> str:
        return ",".join(f"{door}://127.0.0.1:{port}" for door, port in self.ports.items())

    def _settings(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificate.pem),
            "ssl.enabled.protocols": "TLSv1.3",
            "sasl.enabled.mechanisms": MECHANISM,
        }


class SecuredTriglot(Secured, Triglot):
    """Ours."""

    name = "triglot-tls"

    def __init__(self, data: Path, *, port: int = 0) -> None:
        super().__init__(data, port=port or free_port())

    def _prepare(self) -> None:
        self._make_doors()

    def _command(self) -> Sequence[str]:
        port = self.port
        listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{port},{self._doors()}"}
        sets = [
            word
            for key, value in (self._settings() | listeners).items()
            for word in ("--set", f"{key}={value}")
        ]
        return [sys.executable, "-m", "tools", "serve", "--data", str(self.data), *sets]

    def wait_until_ready(self) -> None:
        port = self.port
        super().wait_until_ready()
        self.port = port


class SecuredKafka(Secured, Kafka):
    """Apache Kafka 3.9."""

    name = "kafka-tls"

    def _prepare(self) -> None:
        self._make_doors()
        super()._prepare()

    def _more(self) -> Mapping[str, str]:
        plain = f"PLAINTEXT://{self.bootstrap}"
        controller = f"CONTROLLER://127.0.0.1:{self._controller_port}"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return {
            **self._settings(),
            "listeners": f"{plain},{controller},{self._doors()}",
            "advertised.listeners": f"{plain},{self._doors()}",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
            f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config": scram,
        }


class RuledTriglot(Triglot):
    """Ours, open, with access checked: whoever comes may do all to what has no rules."""

    name = "triglot-rules"

    def _command(self) -> Sequence[str]:
        rules = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        return [
            *super()._command(),
            *("--set", f"authorizer.class.name={rules}"),
            *("--set", "allow.everyone.if.no.acl.found=true"),
        ]
