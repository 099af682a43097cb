"""Several processes behind TLS, SASL and access rules: what is changed at one of them holds in all,
for real clients and for each process by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from tests.broker.test_processes import HOST, WITHIN_S, Directory, until
from tests.clients.moving.closed import log_in
from tests.clients.test_delegation_tokens import create, expire
from tests.support.administrator import SHA_512, Administrator
from tests.support.caller import batch
from tests.support.certificates import Authority
from tests.support.secured import ScramClient, authenticate, salted_password, shake
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.clients, pytest.mark.linux]

MECHANISM = "SCRAM-SHA-512"
TOPIC, GROUP, PARTITIONS = "orders", "billing", 4
SETTINGS = {
    "listeners": f"SASL_SSL://{HOST}:0",
    "sasl.enabled.mechanisms": MECHANISM,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "delegation.token.secret.key": "key-of-the-tests",
    "connection.failed.authentication.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


class SecuredDirectory(Directory):
    """Its processes have a certificate, and a user `admin` who may do everything."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        super().__init__(folder)
        self.authority = Authority(folder)
        self._settings = {
            "ssl.keystore.location": str(self.authority.issue("broker").pem),
            "ssl.truststore.location": str(self.authority.certificate),
            **settings,
        }

    def words(self, *more: str) -> list[str]:
        first, *_ = super().words()
        words = [first, "-m", "tools", "serve", "--json", "--data", str(self.data)]
        for key, value in self._settings.items():
            words += ["--set", f"{key}={value}"]
        user = f"{MECHANISM}=[name=admin,password=admin-secret]"
        return [*words, "--add-scram", user, *more]

    def dial(self, process: int) -> Administrator:
        """A connection over TLS to one of the processes, whose client is not known yet."""
        client = Administrator(HOST, self.ports[process], timeout_s=WITHIN_S)
        client.socket = self.authority_context().wrap_socket(client.socket, server_hostname=HOST)
        return client

    def authority_context(self) -> Any:
        import ssl

        return ssl.create_default_context(cafile=str(self.authority.certificate))

    def connect_as(self, user: str, process: int) -> Administrator:
        client = self.dial(process)
        log_in(client, MECHANISM, user, f"{user}-secret")
        return client


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredDirectory]:
    directory = SecuredDirectory(tmp_path_factory.mktemp("secured"), SETTINGS)
    directory.start(2)
    with directory.connect_as("admin", 1) as admin:  # which is not the controller
        admin.create(TOPIC, PARTITIONS)
        for user in ("alice", "bob"):
            set_password(admin, user, f"{user}-secret")
        admin.allow(ResourceType.TOPIC, TOPIC, "User:alice", Operation.ALL)
        admin.allow(ResourceType.GROUP, GROUP, "User:alice", Operation.ALL)
    yield directory
    directory.stop()
    assert "Traceback" not in directory.log()


def set_password(admin: Administrator, user: str, password: str) -> None:
    salted = salted_password(MECHANISM, password, b"salt of " + user.encode(), 4096)
    admin.set_password(user, SHA_512, salted)


def codes(client: Administrator) -> list[int]:
    """Of a batch to each partition."""
    return [
        client.produce(TOPIC, batch(b"v"), partition=number).error_code
        for number in range(PARTITIONS)
    ]


def of_kafka_python(directory: SecuredDirectory, process: int) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"{HOST}:{directory.ports[process]}",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(directory.authority.certificate),
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }


def test_users_and_rules_that_one_process_was_told_of_hold_in_all(
    secured: SecuredDirectory,
) -> None:
    elsewhere, refused = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for number in (0, 1):
        led = [0 if leader == number else elsewhere for leader in (0, 1, 0, 1)]
        with secured.connect_as("alice", number) as alice:
            assert codes(alice) == led
        with secured.connect_as("bob", number) as bob:
            assert codes(bob) == [refused] * PARTITIONS


def test_clients_of_both_libraries_write_and_read_through_tls_and_scram(
    secured: SecuredDirectory,
) -> None:
    from confluent_kafka import Consumer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaProducer
    producer = KafkaProducer(**of_kafka_python(secured, 1), acks="all")
    sent = {
        (number, producer.send(TOPIC, b"paid", partition=number).get(timeout=WITHIN_S).offset)
        for number in range(PARTITIONS)
    }
    producer.close()
    consumer = Consumer(
        {
            "bootstrap.servers": f"{HOST}:{secured.ports[0]}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(secured.authority.certificate),
            "sasl.mechanism": MECHANISM,
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    found: set[tuple[int | None, int | None]] = set()
    while not sent <= found:
        message = consumer.poll(WITHIN_S)
        assert message is not None
        assert message.error() is None
        if message.value() == b"paid":
            found.add((message.partition(), message.offset()))
    consumer.close()


def test_processes_ask_each_other_about_transactions_whatever_the_rules_say(
    secured: SecuredDirectory,
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaProducer
    kind = ResourceType.TRANSACTIONAL_ID
    with secured.connect_as("admin", 0) as admin:
        for name in ("pay-0", "pay-1", "pay-2", "pay-3"):  # one or the other process coordinates
            admin.allow(kind, name, "User:alice", Operation.ALL)
            producer = KafkaProducer(**of_kafka_python(secured, 1), transactional_id=name)
            producer.init_transactions()
            producer.begin_transaction()
            sent = [producer.send(TOPIC, b"once", partition=at) for at in range(PARTITIONS)]
            producer.commit_transaction()
            assert all(one.succeeded() for one in sent)
            producer.close()


def test_rules_and_passwords_that_are_taken_back_hold_nowhere(secured: SecuredDirectory) -> None:
    with secured.connect_as("admin", 1) as admin, secured.connect_as("bob", 0) as bob:
        set_password(admin, "eve", "eve-secret")
        admin.allow(ResourceType.TOPIC, TOPIC, "User:eve", Operation.WRITE)
        with secured.connect_as("eve", 0) as first, secured.connect_as("eve", 1) as second:
            assert codes(first)[0] == codes(second)[1] == ErrorCode.NONE
            admin.disallow("User:eve")
            refused = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * PARTITIONS
            assert codes(first) == codes(second) == refused
        set_password(admin, "eve", "another")
        for number in (0, 1):
            with secured.dial(number) as eve:
                scram = ScramClient(MECHANISM, "eve", "eve-secret")
                assert shake(eve, MECHANISM).error_code == 0
                answer = authenticate(eve, scram.first())
                final = authenticate(eve, scram.final(bytes(answer.auth_bytes)))
                assert final.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(AssertionError):  # whoever is not allowed to, can't have it done
            set_password(bob, "eve", "of bob's")


def test_a_token_of_one_process_is_good_in_all_until_it_is_ended_in_one(
    secured: SecuredDirectory,
) -> None:
    import base64

    asked = MetadataRequest(topics=[])
    with secured.connect_as("alice", 1) as alice:
        token = create(alice)
        assert token.error_code == 0
        clients = []
        for number in (0, 1):
            clients.append(secured.dial(number))
            password = base64.b64encode(bytes(token.hmac)).decode()
            scram = ScramClient(MECHANISM, token.token_id, password, ",tokenauth=true")
            assert shake(clients[-1], MECHANISM).error_code == 0
            answer = authenticate(clients[-1], scram.first())
            assert authenticate(clients[-1], scram.final(bytes(answer.auth_bytes))).error_code == 0
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert [create(one).error_code for one in clients] == [refused, refused]
        assert expire(alice, bytes(token.hmac), -1).error_code == 0
    for client in clients:
        with client, pytest.raises(ConnectionClosed):
            client.call(asked, 9)


def test_nobody_gets_in_more_easily_while_the_controller_is_away(
    secured: SecuredDirectory,
) -> None:
    os.kill(secured.children()[0], signal.SIGKILL)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with secured.connect_as("bob", 1) as bob, secured.connect_as("alice", 1) as alice:
        assert codes(bob) == [refused] * PARTITIONS
        assert codes(alice)[1] == ErrorCode.NONE
        secured.said("a process serves again")
        assert codes(bob) == [refused] * PARTITIONS
        assert codes(alice)[1] == ErrorCode.NONE
        with secured.connect_as("admin", 1) as admin:
            admin.allow(ResourceType.TOPIC, TOPIC, "User:bob", Operation.WRITE)
        assert codes(bob)[1] == ErrorCode.NONE
    with secured.connect_as("bob", 0) as bob:
        until(lambda: codes(bob)[0] == ErrorCode.NONE)


def test_certificates_name_clients_in_all_processes(tmp_path: Path) -> None:
    settings = {
        **SETTINGS,
        "listeners": f"SSL://{HOST}:0",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
    }
    directory = SecuredDirectory(tmp_path, settings)
    directory.start(2)
    try:
        clients = []
        for user in ("admin", "bob"):
            context = directory.authority_context()
            context.load_cert_chain(directory.authority.issue(user).pem)
            for number in (0, 1):
                client = Administrator(HOST, directory.ports[number], timeout_s=WITHIN_S)
                client.socket = context.wrap_socket(client.socket, server_hostname=HOST)
                clients.append(client)
        of_admin = clients[:2]
        of_admin[1].create(TOPIC, PARTITIONS)
        found = [codes(one) for one in clients]
    finally:
        for one in clients:
            one.socket.close()
        directory.stop()
    led, elsewhere = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert found[:2] == [[led, elsewhere] * 2, [elsewhere, led] * 2]
    assert found[2:] == [[ErrorCode.TOPIC_AUTHORIZATION_FAILED] * PARTITIONS] * 2


def test_a_certificate_that_is_not_there_refuses_the_start_in_a_line(tmp_path: Path) -> None:
    directory = SecuredDirectory(
        tmp_path, {**SETTINGS, "ssl.keystore.location": str(tmp_path / "missing.pem")}
    )
    run = subprocess.run(
        directory.words("--processes", "2"),
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert run.returncode == 1
    assert "missing.pem" in run.stderr.splitlines()[-1]
    assert "Traceback" not in run.stderr
