"""The data that is written to a broker before its data directory goes to another.

Everything keeps for ever: the times in old formats are of years ago, and Apache Kafka's retention
would look at them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka

from protocol.records.builder import build_batch
from tests.support.administrator import SHA_256, TOPIC, Administrator
from tests.support.caller import NOW_MS
from tests.support.old_sets import GZIP, SNAPPY, messages, wrapper

if TYPE_CHECKING:
    from tests.support.server_process import ServerProcess

KEEP = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OLD_FORMATS = {"old-0": (0, "0.9.0", 1), "old-1": (1, "0.10.2", 2)}
#: The newest version that 3.9 and 4 have both.
PRODUCE_VERSION = 11
GROUPS = ["simple", "noted"]
IDEMPOTENT = "numbered"
TRANSACTIONAL = "transfers"


class Sender:
    """An idempotent producer by hand, so that it can go on where it was after a move."""

    def __init__(self, producer_id: int, epoch: int = 0, sequence: int = 0) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self.last = b""

    @classmethod
    def new(cls, admin: Administrator) -> Sender:
        return cls(admin.new_producer_id())

    def send(self, admin: Administrator, *values: bytes) -> int:
        """The offset of the first record."""
        self.last = build_batch(
            # Producers whose last record is a day old are forgotten, here and there.
            [(time.time_ns() // 1_000_000, None, value, ()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
        )
        self.sequence += len(values)
        return self.send_again(admin)

    def send_again(self, admin: Administrator) -> int:
        """What was sent last; a broker that knows the producer does not store it twice."""
        appended = admin.produce(IDEMPOTENT, self.last, version=PRODUCE_VERSION)
        assert appended.error_code == 0, appended.error_code
        offset: int = appended.base_offset
        return offset


def write_all(server: ServerProcess, *, old_formats: bool) -> Sender:
    """Topics of every kind with records, committed offsets, quotas and users."""
    with Administrator(server.host, server.port, timeout_s=30) as admin:
        make_topics(admin)
        make_again(admin, "again", {"retention.bytes": "1"} if old_formats else {})
        if old_formats:
            write_old_formats(admin)
        write_codecs(server, "orders", 3)
        write_codecs(server, "compacted", 1)
        sender = Sender.new(admin)
        sender.send(admin, b"a", b"b", b"c")
        admin.delete_records("cut", write_codecs(server, "cut", 1) // 2)
        admin.commit_when_ready("simple", {("orders", 0): 7, ("orders", 2): 3})
        admin.commit_when_ready("noted", {("orders", 1): (5, "a note \u2603"), ("cut", 0): 4})
        admin.set_quota({"user": "alice"}, "producer_byte_rate", 1048576.0)
        admin.set_quota({"client-id": None}, "request_percentage", 200.0)
        admin.set_password("alice", SHA_256, bytes(range(32)))
    return sender


def make_topics(admin: Administrator) -> None:
    admin.create("orders", 3, configs={**KEEP, "segment.bytes": "1048576"})
    admin.create("compacted", configs={**KEEP, "cleanup.policy": "compact"})
    admin.create("cut", configs=KEEP)
    admin.create("empty", 2, configs={"max.message.bytes": "12345"})
    admin.create(IDEMPOTENT, configs=KEEP)
    admin.create("grown", configs=KEEP)
    admin.grow("grown", 3)
    admin.create("gone", configs={"retention.bytes": "1"})
    admin.delete_topic("gone")


def make_again(admin: Administrator, name: str, configs: dict[str, str]) -> None:
    """A topic, deleted and made again.

    Of what Kafka (3.9.1, 4.3.1) wrote, the second has the configs of the first when Kafka has read
    its log once more; so they have to be none there.
    """
    admin.create(name, 2, configs=configs)
    admin.delete_topic(name)
    admin.create(name, configs=KEEP)


def write_old_formats(admin: Administrator) -> None:
    """Topics in formats 0 and 1, and one in all three. The setting is taken away again, as the
    page says: Kafka 4 does not know it."""
    admin.create("mixed", configs=KEEP)
    for name, (magic, release, version) in OLD_FORMATS.items():
        admin.create(name, configs={**KEEP, "message.format.version": release})
        admin.alter(TOPIC, "mixed", message_format_version=release)
        plain = messages(b"a", None, b"", magic=magic, keys=[None, b"", b"k"])
        for sent in (
            plain,
            wrapper(plain, magic=magic, codec=GZIP),
            wrapper(plain, magic=magic, codec=SNAPPY),
        ):
            for topic in (name, "mixed"):
                assert admin.produce(topic, sent, version=version).error_code == 0
        admin.alter(TOPIC, name, message_format_version=None)
    admin.alter(TOPIC, "mixed", message_format_version=None)
    assert admin.produce("mixed", build_batch([(NOW_MS, b"k", b"new", ())])).error_code == 0


def write_codecs(server: ServerProcess, topic: str, partitions: int, *, tag: str = "") -> int:
    """A few records with every codec, keys, headers and a null; how many in each partition."""
    count = 0
    for codec in CODECS:
        producer = confluent_kafka.Producer(settings(server, **{"compression.type": codec}))
        for partition in range(partitions):
            for number in range(8):
                producer.produce(
                    topic,
                    None if number == 3 else f"{tag}{codec} {number} ".encode() * 20,
                    f"{tag}{codec}{number}",
                    partition,
                    headers={"number": str(number).encode(), "empty": b""},
                )
        assert producer.flush(30) == 0
        count += 8
    return count


def settings(server: ServerProcess, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": server.bootstrap, "linger.ms": 50, "log_level": 0, **more}


def transactional(server: ServerProcess, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        settings(server, **{"transactional.id": name, "transaction.timeout.ms": 600_000})
    )
    producer.init_transactions(30)
    return producer


def write_transactions(server: ServerProcess) -> None:
    """Some that were committed and some that were aborted; one is left open in partition 0, and
    one in partition 1 that is to be taken for a prepared one."""
    producer = transactional(server, "ends")
    for number in range(6):
        producer.begin_transaction()
        for count in range(3):
            for partition in range(3):
                producer.produce(TRANSACTIONAL, f"{number}.{count}", str(number), partition)
        assert producer.flush(30) == 0
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    begun(server, "open", 0)
    begun(server, "prepared", 1)
    last = transactional(server, "behind")
    last.begin_transaction()
    last.produce(TRANSACTIONAL, b"behind", partition=0)
    assert last.flush(30) == 0
    last.commit_transaction(30)


def begun(server: ServerProcess, name: str, partition: int) -> None:
    """A transaction whose producer is gone."""
    producer = transactional(server, name)
    producer.begin_transaction()
    producer.produce(TRANSACTIONAL, name.encode(), partition=partition)
    assert producer.flush(30) == 0
