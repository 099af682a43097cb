"""Topics whose record format changes while they are in use, read by clients of every age.

The phases of KIP-31 and KIP-32 are the formats a topic stores: 0, 1 and 2 (records.md 9, whose rows
are named here). What is done to one set and to one fetch is tested beside the code that does it;
here are whole topics, the same in every format, after any change and after restarts.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import pytest

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from protocol.records.builder import build_batch
from tests.records.corpus import blob, raw, sets
from tests.support.broker_process import BrokerProcess
from tests.support.caller import NOW_MS, Caller
from tests.support.old_sets import (
    GZIP,
    LZ4,
    SNAPPY,
    Seen,
    entries,
    log_bytes,
    magics,
    messages,
    read_through,
    seen,
    wrapper,
)
from tests.support.topic_changes import change, replace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

V0, V1, V2 = "0.9.0", "0.10.2", "3.0"
RELEASES = (V0, V1, V2)
CODECS = (0, GZIP, SNAPPY, LZ4)
NAMES = ("uncompressed", "gzip", "snappy", "lz4", "zstd")

#: NOW_MS is long ago; a segment with such times would be closed at the next record of today.
KEEP = {"segment_ms": str(2**63 - 1), "retention_ms": "-1"}


class Sent(NamedTuple):
    """A record that a producer of `version` sent."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    version: int


class Feed:
    """Producers of every age and codec, who remember what they sent."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.sent: list[Sent] = []

    def round(self, caller: Caller) -> None:
        """One set of each age under each codec. Sizes, nulls and times vary."""
        for version in (0, 1, 2, 3, 9):
            for codec in CODECS:
                self._set(caller, version, codec)

    def _set(self, caller: Caller, version: int, codec: int) -> None:
        first = len(self.sent)
        rows = [
            Sent(
                (None, b"", b"k%d" % number)[number % 3],
                (b"v%d" % number * (1 + number % 50), b"", None)[(number // 3) % 3],
                NOW_MS + (number * 7919) % 10_000,
                version,
            )
            for number in range(first, first + 1 + first % 4)
        ]
        magic = (0, 0, 1)[version] if version < 3 else 2
        if magic == 2:
            fields = [(row.timestamp_ms, row.key, row.value, ()) for row in rows]
            data = build_batch(fields, codec=codec)
        else:
            data = messages(
                *(row.value for row in rows),
                magic=magic,
                keys=[row.key for row in rows],
                times_ms=[row.timestamp_ms for row in rows],
            )
            data = wrapper(data, magic=magic, codec=codec) if codec else data
        answer = caller.produce(self._topic, data, version=version)
        assert (answer.error_code, answer.base_offset) == (0, first)
        self.sent += rows

    def expected(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(offset, row.key, row.value) for offset, row in enumerate(self.sent)]


def everything(caller: Caller, topic: str, version: int, *, at_most: int = 1 << 20) -> list[Seen]:
    """All records, fetch after fetch."""
    return seen(read_through(caller, topic, version=version, at_most=at_most))


def check_all(caller: Caller, topic: str, feed: Feed) -> None:
    """Every age of consumer gets the same offsets, keys and values, in a format that it knows."""
    for version, newest in ((0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (10, 2), (12, 2)):
        found = everything(caller, topic, version)
        assert [(one.offset, one.key, one.value) for one in found] == feed.expected(), version
        for offset in range(0, len(feed.sent), 13):
            assert max(magics(caller.fetch(topic, offset, version=version).records)) <= newest


@pytest.fixture(scope="module")
def filled(broker: BrokerProcess) -> dict[str, Feed]:
    """A topic for each release, filled by producers of every age."""
    feeds = {}
    with Caller(broker.host, broker.port) as caller:
        for release in RELEASES:
            caller.create_topic(f"filled-{release}", 1, message_format_version=release, **KEEP)
            feeds[release] = Feed(f"filled-{release}")
            for _ in range(3):
                feeds[release].round(caller)
    return feeds


# The same records through every format.


@pytest.mark.parametrize("release", RELEASES)
def test_the_same_log_reads_the_same_through_every_version_of_fetch(
    caller: Caller, filled: dict[str, Feed], release: str
) -> None:
    """Case 30 of records.md 14, for each format stored."""
    check_all(caller, f"filled-{release}", filled[release])


@pytest.mark.parametrize("release", RELEASES)
def test_times_are_those_of_the_producers_wherever_all_formats_on_the_way_have_them(
    caller: Caller, filled: dict[str, Feed], release: str
) -> None:
    for version in (1, 3, 4):
        found = [one.timestamp_ms for one in everything(caller, f"filled-{release}", version)]
        assert found == [
            row.timestamp_ms if row.version >= 2 and release != V0 and version >= 2 else -1
            for row in filled[release].sent
        ]


@pytest.mark.parametrize("release", RELEASES)
def test_only_the_format_of_the_topic_is_stored(
    broker: BrokerProcess, filled: dict[str, Feed], release: str
) -> None:
    on_disk = log_bytes(broker.data, f"filled-{release}")

    assert set(magics(on_disk)) == {RELEASES.index(release)}


@pytest.mark.parametrize("release", RELEASES)
def test_what_real_clients_sent_is_the_same_in_every_format_and_for_every_reader(
    caller: Caller, topic: str, release: str
) -> None:
    """Sets as captured from clients of eleven years. Headers and producer ids need format 2."""
    caller.create_topic(topic, message_format_version=release, max_message_bytes="4000000")
    expected: list[tuple[object, object]] = []
    clients = set()
    refusals = (
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
    for vector in sets(0, 1, 2):
        records = [record for entry in vector["expect"] for record in entry["records"]]
        sent = bytes(raw(vector["bytes"]))
        if vector["client_version"] == "3.9.0" or vector["client"] == "hand":
            continue  # stored by a broker
        answer = caller.produce(topic, sent, version=(0, 2, 9)[vector["magic"]])
        if answer.error_code:
            assert vector["magic"] == 2, vector["id"]
            assert release != V2 or "transactional" in vector["id"], vector["id"]
            assert answer.error_code in refusals
            continue
        assert answer.base_offset == len(expected), vector["id"]
        clients.add((vector["client"], vector["client_version"]))
        expected += [(record["key"], record["value"]) for record in records]

    assert len(clients) == 9
    for version in (0, 1, 2, 3, 4, 10, 12):
        found = seen(read_through(caller, topic, version=version, at_most=1 << 22))
        assert [(blob(one.key), blob(one.value)) for one in found] == expected
        assert [one.offset for one in found] == list(range(len(expected)))


# A live topic switched.


@pytest.mark.parametrize("how", [change, replace])
def test_a_topic_switched_2_1_2_0_reads_the_same_for_everybody_at_every_step(
    broker: BrokerProcess, caller: Caller, topic: str, how: object
) -> None:
    """Case 33. Each format gets a segment of its own: aiokafka and kafkajs take an answer to be all
    in the format of its first entry. That one segment may hold several formats, as Kafka's do, is
    shown in test_fetch_formats."""
    assert how in (change, replace)
    alter = change if how is change else replace
    caller.create_topic(topic, 1, **KEEP)
    feed = Feed(topic)
    for release in (V2, V1, V2, V0, V1):
        assert alter(caller, topic, message_format_version=release, **KEEP) == 0
        feed.round(caller)
        check_all(caller, topic, feed)

    assert len(list((broker.data / f"{topic}-0").glob("*.log"))) == 5
    steps = magics(log_bytes(broker.data, topic))
    assert [now for before, now in zip([-1, *steps], steps, strict=False) if now != before] == [
        2, 1, 2, 0, 1,
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_switched_topic_is_the_same_after_a_restart(
    own_broker: BrokerProcess, topic: str, end: str
) -> None:
    own_broker.start()
    feed = Feed(topic)
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic(topic, 1, **KEEP)
    for release in (V1, V0, V2, V1):
        with Caller(own_broker.host, own_broker.port) as caller:
            assert change(caller, topic, message_format_version=release) == 0
            feed.round(caller)
        getattr(own_broker, end)()
        own_broker.start()
        with Caller(own_broker.host, own_broker.port) as caller:
            feed.round(caller)
            check_all(caller, topic, feed)
    # Every round makes the same sets, so each format has its share.
    assert set(magics(log_bytes(own_broker.data, topic))) == {0, 1, 2}


def test_a_switched_topic_is_read_in_small_pieces_too(caller: Caller, topic: str) -> None:
    """Each answer has at least one record that is wanted; nobody stalls (records.md 8.4)."""
    caller.create_topic(topic, 1, segment_bytes="2000", **KEEP)
    feed = Feed(topic)
    for release in (V2, V0, V1):
        assert change(caller, topic, message_format_version=release) == 0
        feed.round(caller)

    for version in (3, 4, 10):
        found = everything(caller, topic, version, at_most=1)
        assert [(one.offset, one.key, one.value) for one in found] == feed.expected()


def test_the_broker_has_a_format_for_topics_without_one_of_their_own(
    tmp_path: Path, topic: str
) -> None:
    settings = {"log.message.format.version": V1}
    with (
        BrokerProcess(tmp_path / "data", settings=settings) as own,
        Caller(own.host, own.port) as caller,
    ):
        caller.create_topic(topic, 1, **KEEP)
        caller.create_topic(f"{topic}-2", 1, message_format_version=V2, **KEEP)
        feeds = [Feed(topic), Feed(f"{topic}-2")]
        for feed in feeds:
            feed.round(caller)
        assert set(magics(log_bytes(own.data, topic))) == {1}
        assert set(magics(log_bytes(own.data, f"{topic}-2"))) == {2}
        own.stop()
        own.settings["log.message.format.version"] = V0
        own.start()
        with Caller(own.host, own.port) as again:
            for feed in feeds:
                feed.round(again)
            check_all(again, topic, feeds[0])
            check_all(again, f"{topic}-2", feeds[1])
        assert set(magics(log_bytes(own.data, topic))) == {0, 1}
        assert set(magics(log_bytes(own.data, f"{topic}-2"))) == {2}


@pytest.mark.parametrize("release", RELEASES)
def test_the_codec_of_a_topic_can_be_switched_as_well(
    broker: BrokerProcess, caller: Caller, topic: str, release: str
) -> None:
    caller.create_topic(topic, 1, message_format_version=release, **KEEP)
    feed = Feed(topic)
    for name in (*NAMES[: 5 if release == V2 else 4], "producer"):
        before = len(log_bytes(broker.data, topic))
        assert change(caller, topic, compression_type=name) == 0
        feed.round(caller)
        added = log_bytes(broker.data, topic)[before:]
        if name == "producer":
            assert {codec for _, codec in codecs_of(added)} == set(CODECS)
        else:
            assert {codec for _, codec in codecs_of(added)} == {NAMES.index(name)}
        check_all(caller, topic, feed)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 9])
def test_readers_from_before_zstd_are_given_gzip_instead(
    caller: Caller, topic: str, version: int
) -> None:
    """Apache Kafka can only refuse them (76, records.md 8.2)."""
    caller.create_topic(topic, compression_type="zstd")
    feed = Feed(topic)
    feed.round(caller)

    data = bytes(caller.fetch(topic, version=version).records)

    assert {codec for _, codec in codecs_of(data)} == {GZIP}
    assert {codec for _, codec in codecs_of(bytes(caller.fetch(topic, version=10).records))} == {4}
    found = [(one.offset, one.key, one.value) for one in seen(data)]
    assert found == feed.expected()


def codecs_of(data: bytes) -> Iterator[tuple[int, int]]:
    """Magic and codec of each entry."""
    position = 0
    while position < len(data):
        magic = data[position + 16]
        yield magic, data[position + (17 if magic < 2 else 22)] & 7
        position += 12 + int(struct.unpack_from(">i", data, position + 8)[0])


def test_zstd_cannot_be_the_codec_of_a_topic_whose_format_does_not_have_it(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, message_format_version=V1)

    assert change(caller, topic, compression_type="zstd") == ErrorCode.INVALID_CONFIG
    assert change(caller, topic, message_format_version=V2, compression_type="zstd") == 0
    assert change(caller, topic, message_format_version=V1) == ErrorCode.INVALID_CONFIG


# LO-1 and TI: searching by time.


@pytest.mark.parametrize("version", range(1, 12))
def test_lo_1_a_topic_of_format_0_cannot_be_searched_by_time(
    caller: Caller, filled: dict[str, Feed], version: int
) -> None:
    topic = f"filled-{V0}"

    for wanted in (0, NOW_MS):
        found = caller.offset(topic, wanted, version=version)
        assert found.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        assert (found.offset, found.timestamp) == (-1, -1)
    assert caller.offset(topic, -1, version=version).offset == len(filled[V0].sent)
    assert caller.offset(topic, -2, version=version).offset == 0
    if version >= 7:
        largest = caller.offset(topic, -3, version=version)
        assert (largest.error_code, largest.offset, largest.timestamp) == (0, -1, -1)


@pytest.mark.parametrize("release", [V1, V2])
def test_lo_1_a_time_is_found_wherever_it_is_in_a_set(
    caller: Caller, filled: dict[str, Feed], release: str
) -> None:
    """Case 34: the record's own offset, not that of its set, under every codec."""
    topic = f"filled-{release}"
    times = [row.timestamp_ms if row.version >= 2 else -1 for row in filled[release].sent]

    for wanted in range(NOW_MS - 1, NOW_MS + 10_001, 271):
        found = caller.offset(topic, wanted, version=1 + wanted % 11)
        expected = next((at for at, moment in enumerate(times) if moment >= wanted), -1)
        assert found.offset == expected
        assert found.timestamp == (times[expected] if expected >= 0 else -1)


@pytest.mark.parametrize("release", [V1, V2])
@pytest.mark.parametrize("version", range(7, 12))
def test_the_largest_time_is_found_inside_its_set(
    caller: Caller, filled: dict[str, Feed], release: str, version: int
) -> None:
    """Case 35: of equal ones the first."""
    times = [row.timestamp_ms if row.version >= 2 else -1 for row in filled[release].sent]

    found = caller.offset(f"filled-{release}", -3, version=version)

    assert (found.offset, found.timestamp) == (times.index(max(times)), max(times))


def test_of_two_sets_with_the_same_largest_time_the_earlier_is_found(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, message_format_version=V1)
    for _ in range(2):
        plain = messages(b"a", b"b", b"c", magic=1, times_ms=[NOW_MS, NOW_MS + 9, NOW_MS + 3])
        caller.produce(topic, wrapper(plain, magic=1), version=2)

    assert caller.offset(topic, -3, version=7).offset == 1


def test_lo_1_messages_without_a_time_never_match_in_a_topic_that_once_had_none(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, 1, message_format_version=V0, **KEEP)
    caller.produce(topic, messages(b"a", b"b", magic=0), version=0)
    assert change(caller, topic, message_format_version=V1) == 0
    caller.produce(topic, messages(b"c", magic=0), version=0)
    caller.produce(topic, messages(b"d", magic=1, times_ms=[NOW_MS]), version=2)
    assert change(caller, topic, message_format_version=V2) == 0
    caller.produce(topic, messages(b"e", magic=1, times_ms=[NOW_MS - 5]), version=2)

    for wanted, offset in ((0, 3), (NOW_MS, 3), (NOW_MS - 5, 3), (NOW_MS + 1, -1)):
        assert caller.offset(topic, wanted, version=1).offset == offset
    assert caller.offset(topic, -3, version=7).offset == 3


def test_ti_the_time_index_stays_empty_in_phase_1_and_only_there(
    own_broker: BrokerProcess, topic: str
) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        for release in RELEASES:
            name = f"{topic}-{release}"
            caller.create_topic(
                name, 1, message_format_version=release, index_interval_bytes="0", **KEEP
            )
            for at in (0, 10, 5, 20):
                sent = messages(b"a", b"b", magic=1, times_ms=[NOW_MS + at + 1, NOW_MS + at])
                caller.produce(name, sent, version=2)
                caller.produce(name, wrapper(sent, magic=1), version=2)
    own_broker.stop()

    rows = {release: time_index(own_broker.data, f"{topic}-{release}") for release in RELEASES}

    # (time, last offset) of sets that bring a new largest time: of plain messages of format 1 the
    # message that has it, otherwise the last of the set (records.md 10.2). The first set needs no
    # entry of its own: the second writes it.
    assert rows[V0] == []
    assert rows[V1] == [(NOW_MS + 1, 0), (NOW_MS + 11, 4), (NOW_MS + 21, 12)]
    assert rows[V2] == [(NOW_MS + 1, 1), (NOW_MS + 11, 5), (NOW_MS + 21, 13)]


def time_index(data: Path, topic: str) -> list[tuple[int, ...]]:
    (path,) = (data / f"{topic}-0").glob("*.timeindex")
    return list(struct.iter_unpack(">qi", path.read_bytes()))


# The clients of 0.8: no ApiVersions, the first version of everything.


def test_a_client_of_0_8_asks_blindly_and_is_understood(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)

    with Caller(broker.host, broker.port, client_id="") as old:
        named = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)])
        node = old.call(named, 0).brokers[0]
        assert (node.host, node.port) == (broker.host, broker.port)
        everything_there = old.call(MetadataRequest(topics=[]), 0)
        assert topic in [found.name for found in everything_there.topics]
        sent = messages(b"a", b"b", magic=0, offsets=[0, 0], keys=[b"k", None])
        assert old.produce(topic, sent, version=0, acks=1).base_offset == 0
        assert old.produce(topic, wrapper(sent, magic=0), version=0).base_offset == 2
        fetched = old.fetch(topic, version=0)

    assert (fetched.error_code, fetched.high_watermark) == (0, 4)
    found = seen(fetched.records)
    assert [(r.offset, r.key, r.value) for r in found] == [
        (0, b"k", b"a"),
        (1, None, b"b"),
        (2, b"k", b"a"),
        (3, None, b"b"),
    ]


def test_a_client_of_0_8_makes_a_topic_by_naming_it(caller: Caller, topic: str) -> None:
    (found,) = caller.call(MetadataRequest(topics=[MetadataRequest.Topic(name=topic)]), 0).topics

    assert (found.error_code, found.name) == (0, topic)
    assert [partition.leader_id for partition in found.partitions] == [
        caller.call(MetadataRequest(topics=[]), 0).brokers[0].node_id
    ]
    assert caller.produce(topic, messages(b"x", magic=0), version=0).base_offset == 0


def test_a_wrapper_can_be_asked_for_by_an_offset_in_its_middle(caller: Caller, topic: str) -> None:
    """Old consumers skip what lies before; they get whole wrappers (case 25)."""
    for release in RELEASES:
        name = f"{topic}-{release}"
        caller.create_topic(name, message_format_version=release)
        sent = wrapper(messages(b"a", b"b", b"c", magic=1), magic=1)
        for _ in range(2):
            caller.produce(name, sent, version=2)
        for version in (0, 2):
            fetched = caller.fetch(name, 4, version=version).records
            (only,) = entries(fetched)
            assert only.offset == 5
            assert [one.offset for one in seen(fetched)] == [3, 4, 5]
