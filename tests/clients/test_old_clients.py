"""Old clients on topics that make the broker work for them: changed formats, codecs and times.

Each topic is written once, by clients of several ages, and read by every old client.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.clients.available import MARKS, end_of_test
from tests.clients.drivers.driver import KEEP_FOR_EVER
from tests.clients.grid import as_seen, records_of
from tests.clients.grid_clients import BY_KEY, GRID_CLIENTS
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.conftest import OutsideServer
    from tests.clients.grid_clients import GridClient, GridDrivers
    from tests.clients.records import Record
    from tests.support.server_process import ServerProcess

# The first run on a machine fetches every client.
pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        os.environ.get("TEST_SERVER") == "kafka", reason="Apache Kafka 3.9 writes format 2 only"
    ),
]

#: message.format.version -> record format.
FORMATS = {"0.9.0": 0, "0.10.2": 1, "3.0": 2}

#: The life of a topic: a setting, and who writes then, in which codec.
CHANGES = (
    ("0.9.0", ("kafka-python-0.9.5", "gzip"), ("java-0.10.2", "snappy"), ("java-4", "none")),
    ("0.10.2", ("java-0.8.2", "gzip"), ("java-0.10.2", "gzip"), ("kafka-python-2.0.2", "snappy")),
    ("3.0", ("scala-0.8.2", "snappy"), ("confluent-kafka", "zstd"), ("java-0.9.0", "none")),
    ("0.10.2", ("confluent-kafka", "none"), ("kafka-python-0.9.5", "snappy"), ("java-4", "gzip")),
    ("0.9.0", ("scala-0.8.2", "none"), ("java-1.1", "snappy"), ("kafka-python-1.4.7", "gzip")),
)

#: Of one writer in one codec.
RECORD_COUNT = 60

OLD_READERS = [
    pytest.param(client.key, id=client.key, marks=MARKS[client.runtime])
    for client in GRID_CLIENTS
    if client.old and client.reads
]

NEW_READERS = [
    pytest.param(
        client.key,
        id=client.key,
        marks=MARKS[client.runtime],
    )
    for client in GRID_CLIENTS
    if not client.old
]


class Part(NamedTuple):
    """The records that one client wrote in one go, and the format in which they lie."""

    writer: GridClient
    record_format: int
    records: list[Record]


class Topic(NamedTuple):
    name: str
    parts: list[Part]

    def as_seen(self, reader: GridClient) -> list[Record]:
        return [
            as_seen(record, part.writer, reader, part.record_format)
            for part in self.parts
            for record in part.records
        ]


class Writing:
    """Writes topics, all in partition 0."""

    def __init__(self, drivers: GridDrivers, bootstrap: str) -> None:
        self.drivers = drivers
        self.bootstrap = bootstrap

    def topic(self, name: str, version: str, **configs: str) -> Topic:
        name = f"{name}-{os.urandom(4).hex()}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.drivers.create_topic(
            self.bootstrap, name, {**KEEP_FOR_EVER, "message.format.version": version, **settings}
        )
        return Topic(name, [])

    def write(self, topic: Topic, version: str, key: str, codec: str) -> None:
        writer = BY_KEY[key]
        number = len(topic.parts)
        records = [
            record._replace(partition=0, headers=())
            for record in records_of(writer, number, 0)[:RECORD_COUNT]
        ]
        self.drivers.write(writer, self.bootstrap, topic.name, records, codec=codec)
        topic.parts.append(Part(writer, FORMATS[version], records))


@pytest.fixture(scope="module")
def writing(grid_drivers: GridDrivers, broker: ServerProcess | OutsideServer) -> Writing:
    for client in GRID_CLIENTS:
        try:
            grid_drivers.get(client)
        except NotAvailable as reason:
            end_of_test(client.runtime, f"{client.key}: {reason}")
    return Writing(grid_drivers, broker.bootstrap)


@pytest.fixture(scope="module")
def changed_topic(writing: Writing) -> Topic:
    topic = writing.topic("changed", CHANGES[0][0])
    for version, *writers in CHANGES:
        admin = writing.drivers.admin
        admin.alter_config(writing.bootstrap, topic.name, "message.format.version", version)
        for key, codec in writers:
            writing.write(topic, version, key, codec)
    return topic


@pytest.mark.parametrize("start", [0, 137, 331, 650])
@pytest.mark.parametrize("reader", OLD_READERS)
def test_a_topic_whose_format_changed_is_read_from_anywhere(
    reader: str, start: int, changed_topic: Topic, writing: Writing
) -> None:
    check_read(writing, changed_topic, BY_KEY[reader], start)


@pytest.mark.parametrize("reader", NEW_READERS)
def test_a_topic_whose_format_changed_is_read_by_clients_of_today(
    reader: str, changed_topic: Topic, writing: Writing
) -> None:
    wanted = changed_topic.as_seen(BY_KEY[reader])

    stored = writing.drivers.read(
        BY_KEY[reader], writing.bootstrap, changed_topic.name, {0: len(wanted)}
    )

    assert stored[0] == list(enumerate(wanted))


def check_read(writing: Writing, topic: Topic, reader: GridClient, start: int) -> None:
    """Read it with an old client from an offset on, and compare."""
    wanted = topic.as_seen(reader)

    stored = writing.drivers.read_from(
        reader, writing.bootstrap, topic.name, {0: len(wanted)}, start=start
    )

    assert stored[0] == list(enumerate(wanted))[start:]


TARGETS = ("gzip", "snappy", "lz4", "zstd", "uncompressed")

WRITERS_TO_TARGETS = (
    ("kafka-python-0.9.5", "gzip"),
    ("scala-0.8.2", "snappy"),
    ("java-0.9.0", "lz4"),
    ("java-0.10.2", "none"),
    ("confluent-kafka", "lz4"),
    ("java-4", "gzip"),
)


@pytest.fixture(scope="module")
def recompressed_topics(writing: Writing) -> Callable[[str, str], Topic]:
    made: dict[tuple[str, str], Topic] = {}

    def get(version: str, target: str) -> Topic:
        if (version, target) not in made:
            topic = writing.topic(f"to-{target}-{version}", version, compression_type=target)
            for key, codec in WRITERS_TO_TARGETS:
                writing.write(topic, version, key, codec)
            made[version, target] = topic
        return made[version, target]

    return get


RECOMPRESSED = [
    pytest.param(
        client.key,
        version,
        target,
        id=f"{client.key}-{version}-{target}",
        marks=MARKS[client.runtime],
    )
    for client in GRID_CLIENTS
    if client.old and client.reads
    for version, record_format in FORMATS.items()
    for target in TARGETS
    if target in (*client.reads, "uncompressed") or (target == "zstd" and record_format == 2)
    if target != "zstd" or record_format == 2
]


@pytest.mark.parametrize(("reader", "version", "target"), RECOMPRESSED)
def test_a_topic_with_a_codec_of_its_own_is_read(
    reader: str,
    version: str,
    target: str,
    recompressed_topics: Callable[[str, str], Topic],
    writing: Writing,
) -> None:
    topic = recompressed_topics(version, target)

    check_read(writing, topic, BY_KEY[reader], 0)
    check_read(writing, topic, BY_KEY[reader], 101)


@pytest.fixture(scope="module")
def stamped_topics(writing: Writing) -> dict[str, tuple[Topic, int, int]]:
    found = {}
    for version in ("0.10.2", "3.0"):
        topic = writing.topic(f"stamped-{version}", version, message_timestamp_type="LogAppendTime")
        before_ms = int(time.time() * 1_000)
        for key, codec in WRITERS_TO_TARGETS:
            if codec != "lz4":
                writing.write(topic, version, key, codec)
        found[version] = topic, before_ms, int(time.time() * 1_000)
    return found


@pytest.mark.parametrize("version", ["0.10.2", "3.0"])
@pytest.mark.parametrize("reader", OLD_READERS)
def test_the_time_of_the_append_is_what_every_reader_sees(
    reader: str, version: str, stamped_topics: dict[str, tuple[Topic, int, int]], writing: Writing
) -> None:
    topic, before_ms, after_ms = stamped_topics[version]
    client, wanted = BY_KEY[reader], sum(len(part.records) for part in topic.parts)

    stored = writing.drivers.read_from(client, writing.bootstrap, topic.name, {0: wanted})[0]

    times = [record.timestamp_ms for _, record in stored]
    assert len(times) == wanted
    if client.timestamps:
        assert times == sorted(times)
        assert before_ms <= times[0] <= times[-1] <= after_ms
    else:
        assert set(times) == {-1}
