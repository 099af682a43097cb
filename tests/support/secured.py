"""Brokers with TLS and SASL, and clients that speak them by hand.

    with SecuredBroker(tmp_path) as broker, broker.connect("SASL_SSL") as client:
        shake(client, "PLAIN")
        authenticate(client, b"\\0alice\\0alice-secret")

Every protocol has a listener of its name. The users are alice and bob, their passwords
`alice-secret` and `bob-secret`; those of SCRAM are made over the PLAINTEXT listener.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING, Any

from config.jaas import PLAIN_LOGIN_MODULE
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.certificates import Authority
from tests.support.server_process import free_port
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
USERS = {"alice": "alice-secret", "bob": "bob-secret"}
JAAS = f"{PLAIN_LOGIN_MODULE} required " + " ".join(
    f'user_{user}="{password}"' for user, password in USERS.items()
)
HASHES = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
ITERATIONS = 4096


class SecuredBroker(BrokerProcess):
    """A broker with a listener of each protocol, on ports that are known before it starts."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.authority = Authority(folder)
        self.certificate = self.authority.issue("broker")
        self.ports = {protocol: free_port() for protocol in PROTOCOLS}
        listeners = (f"{name}://{self.host}:{port}" for name, port in self.ports.items())
        jaas = {
            f"listener.name.{name.lower()}.plain.sasl.jaas.config": f"{JAAS};"
            for name in PROTOCOLS[2:]
        }
        given = {
            "listeners": ",".join(listeners),
            "ssl.keystore.location": str(self.certificate.pem),
            "ssl.truststore.location": str(self.authority.certificate),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            **jaas,
            **(settings or {}),
        }
        super().__init__(folder / "data", settings=given)

    def bootstrap_of(self, protocol: str) -> str:
        return f"{self.host}:{self.ports[protocol]}"

    def connect(self, protocol: str, context: ssl.SSLContext | None = None) -> WireClient:
        """A client that has not authenticated yet."""
        client = Caller(self.host, self.ports[protocol], client_id="secured")
        if protocol.endswith("SSL"):
            client.socket = (context or self.context()).wrap_socket(
                client.socket, server_hostname=self.host
            )
        return client

    def context(self) -> ssl.SSLContext:
        """What a client of this broker trusts."""
        return ssl.create_default_context(cafile=str(self.authority.certificate))

    def socket(self, protocol: str) -> socket.socket:
        return socket.create_connection((self.host, self.ports[protocol]), timeout=10)

    def add_scram_users(self) -> None:
        upsertions = []
        for user, password in USERS.items():
            for name, (number, _) in HASHES.items():
                salt = os.urandom(16)
                salted = salted_password(name, password, salt, ITERATIONS)
                upsertions.append((user, number, salt, salted))
        with Caller(self.host, self.ports["PLAINTEXT"]) as caller:
            for mechanism in HASHES.values():
                request = AlterUserScramCredentialsRequest(
                    deletions=[],
                    upsertions=[
                        AlterUserScramCredentialsRequest.Upsertion(
                            name=user,
                            mechanism=number,
                            iterations=ITERATIONS,
                            salt=salt,
                            salted_password=salted,
                        )
                        for user, number, salt, salted in upsertions
                        if number == mechanism[0]
                    ],
                )
                answer = caller.call(request)
                assert {one.error_code for one in answer.results} == {0}


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """What a client of SCRAM and an administrator make of a password."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism][1], password.encode(), salt, iterations)


def shake(client: WireClient, mechanism: str, version: int = 1) -> Any:
    return client.call(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(client: WireClient, token: bytes, version: int = 2) -> Any:
    return client.call(SaslAuthenticateRequest(auth_bytes=token), version)


def send_token(client: WireClient, token: bytes) -> bytes:
    """A token without a header, as it follows SaslHandshake of version 0, and its answer."""
    client.send_raw(len(token).to_bytes(4, "big") + token)
    return recv_token(client)


def recv_token(client: WireClient) -> bytes:
    size = int.from_bytes(client._recv_exactly(4), "big")
    return client._recv_exactly(size)


class ScramClient:
    """The client's side of SCRAM."""

    def __init__(self, mechanism: str, user: str, password: str, extensions: str = "") -> None:
        self._hash = HASHES[mechanism][1]
        self._password = password.encode()
        self._nonce = base64.b64encode(os.urandom(12)).decode()
        self._bare = f"n={user},r={self._nonce}{extensions}"
        self._ours = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        found = re.fullmatch(r"r=(.*),s=(.*),i=(\d+)", challenge.decode())
        assert found is not None
        assert found[1].startswith(self._nonce)
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._password, base64.b64decode(found[2]), int(found[3])
        )
        client_key = hmac.new(salted, b"Client Key", self._hash).digest()
        stored_key = hashlib.new(self._hash, client_key).digest()
        without = f"c=biws,r={found[1]}"
        signed = f"{self._bare},{challenge.decode()},{without}".encode()
        signature = hmac.new(stored_key, signed, self._hash).digest()
        server_key = hmac.new(salted, b"Server Key", self._hash).digest()
        self._ours = hmac.new(server_key, signed, self._hash).digest()
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without},p={base64.b64encode(proof).decode()}".encode()

    def is_from_the_server(self, final: bytes) -> bool:
        """Whether the answer to the last message proves that the server knows the password too."""
        return final == b"v=" + base64.b64encode(self._ours)
