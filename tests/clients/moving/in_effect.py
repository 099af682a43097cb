"""What users, rules and quotas do to clients: librdkafka, and for other addresses our own.

Each attempt has a name and ends in a word, so that the attempts at two brokers can be compared.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from tests.clients.moving.closed import USERS_LISTENER, CallerFrom, log_in
from tests.support.caller import batch
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from tests.clients.moving.closed import Server

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
PATIENCE_S = 30.0
LET_IN, REFUSED = "let in", "refused"
LIMITED, UNLIMITED = "limited", "unlimited"
NEIGHBOUR, CROWD = "127.0.0.2", "127.0.0.3"
"""Addresses of this machine that rules and quotas name."""
CONNECTIONS = 30
QUOTA_TOPIC = "quota"
WINDOW_S = 10
"""Over so long rates are taken, by default."""
SENT_BYTES = 900_000
STEP = 10_000
"""Quotas are multiples of it; what is told of them is exact to a few hundredths."""

Passwords = dict[tuple[str, str], str]
"""By user and mechanism."""


class Client:
    """A user's login for clients of librdkafka."""

    def __init__(self, server: Server, passwords: Passwords, user: str, mechanism: str) -> None:
        self._errors: list[KafkaError] = []
        self._throttled_s: list[float] = []
        self.settings: dict[str, Any] = {
            "bootstrap.servers": f"{server.host}:{server.users_port}",
            "security.protocol": USERS_LISTENER,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": passwords[user, mechanism],
            "error_cb": self._errors.append,
            "log_level": 0,
        }

    def log_in(self) -> str:
        """Whether the broker lets it in."""
        admin = AdminClient(self.settings)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                admin.list_topics(timeout=0.5)
            except KafkaException:
                admin.poll(0)
            else:
                return LET_IN
            if any(one.code() == KafkaError._AUTHENTICATION for one in self._errors):
                return REFUSED
        raise AssertionError(self._errors)

    def write(self, topic: str, value: bytes = b"v", client_id: str = "probe") -> str:
        """The error of a record, or that there was none."""
        told: list[str] = []
        producer = confluent_kafka.Producer(
            {
                **self.settings,
                "client.id": client_id,
                "acks": 1,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "throttle_cb": lambda event: self._throttled_s.append(event.throttle_time),
            }
        )
        producer.produce(topic, value, on_delivery=lambda error, _: told.append(_name(error)))
        producer.flush(PATIENCE_S)
        producer.poll(0.2)
        (one,) = told
        return one

    def quota(self, client_id: str) -> str:
        """The quota by which it has to wait, of what it has not used yet."""
        assert self.write(QUOTA_TOPIC, bytes(SENT_BYTES), client_id) == "NONE"
        if not self._throttled_s:
            return UNLIMITED
        per_second = SENT_BYTES / (self._throttled_s[0] + WINDOW_S)
        return str(round(per_second / STEP) * STEP)

    def read(self, topic: str) -> str:
        """The error of a reader, or that a record came."""
        consumer = confluent_kafka.Consumer({**self.settings, "group.id": "g-reads"})
        try:
            # Whoever may not even see the topic is told so here; a reader would wait for it.
            described = consumer.list_topics(topic, PATIENCE_S).topics[topic]
            if described.error is not None:
                return _name(described.error)
            consumer.assign([TopicPartition(topic, 0, 0)])
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            return _name(message.error())
        finally:
            consumer.close()

    def join(self, group: str) -> str:
        """The error of a member of a group, or that it was given a record."""
        consumer = confluent_kafka.Consumer(
            {
                **self.settings,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        try:
            consumer.subscribe(["orders"])
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            return _name(message.error())
        finally:
            consumer.close()


def _name(error: KafkaError | None) -> str:
    return "NONE" if error is None else ErrorCode(error.code()).name


def write_from(server: Server, passwords: Passwords, user: str, topic: str) -> str:
    """What a user is told who writes from the address of the neighbour."""
    with CallerFrom(NEIGHBOUR, server.host, server.users_port) as client:
        log_in(client, SHA_512, user, passwords[user, SHA_512])
        code = client.produce(topic, batch(b"v"), version=9).error_code
        return ErrorCode(code).name


def connect_often(server: Server) -> str:
    """Whether somebody who connects often is not heard at last."""
    callers = [CallerFrom(CROWD, server.host, server.port) for _ in range(CONNECTIONS)]
    try:
        callers[0].call(MetadataRequest(topics=[]), 9)
        callers[-1].call(MetadataRequest(topics=[]), 9)
    except ConnectionClosed:
        return LIMITED
    finally:
        for caller in callers:
            caller.close()
    return UNLIMITED


def attempts(server: Server, passwords: Passwords) -> dict[str, str]:
    """How every attempt ends."""

    def client(user: str, mechanism: str = SHA_512) -> Client:
        return Client(server, passwords, user, mechanism)

    wrong = {key: password + "?" for key, password in passwords.items()}
    found = {
        **{f"{user} by {how}": client(user, how).log_in() for user, how in passwords},
        "alice with a wrong password": Client(server, wrong, "alice", SHA_512).log_in(),
        **{
            f"{user} writes {topic}": client(user).write(topic)
            for user in ("alice", "bob", "carol")
            for topic in ("orders", "orders-eu")
        },
        **{
            f"alice reads {topic}": client("alice").read(topic)
            for topic in ("orders-eu", "orders-secret", "other")
        },
        **{f"alice joins {group}": client("alice").join(group) for group in ("g-1", "h")},
        **{
            f"{user} writes {topic} from elsewhere": write_from(server, passwords, user, topic)
            for user, topic in (("bob", "orders"), ("carol", "orders"), ("carol", "other"))
        },
        **{
            f"quota of {user} with {client_id}": client(user).quota(client_id)
            for user, client_id in (
                ("alice", "app"),
                ("alice", "another"),
                ("bob", "any"),
                ("carol", "shared"),
                ("carol", "batch"),
                ("carol", "any"),
            )
        },
    }
    found["often from one address"] = connect_often(server)
    return found
