"""KIP-31, relative offsets: what it promises, through a running broker and requests of its time.

Each test names the passage it holds us to. Where Apache Kafka shipped something else than the text
says, the test says so and follows Kafka (records.md 13). Retention by time is in test_retention.py.
Not covered here, because nothing compacts yet: what the cleaner does to wrappers; a wrapper with
holes, as a cleaner leaves it, is read all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from tests.records.corpus import blob, raw, sets
from tests.support.caller import NOW_MS, Caller, batch
from tests.support.old_sets import (
    GZIP,
    LZ4,
    SNAPPY,
    entries,
    log_bytes,
    magics,
    messages,
    read_through,
    seen,
    wrapper,
)
from tests.support.topic_changes import change

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess
    from tests.support.scraped import CodecCalls

V0, V1, V2 = "0.9.0", "0.10.2", "3.0"
VALUES = (b"a", None, b"")
KEYS = (b"k", b"", None)
CODECS = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
KAFKA = "3.9.0"
"""The version of the vectors that a broker stored; the others were sent by clients."""
NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4"}


def three(magic: int, **fields: list[int]) -> bytes:
    return messages(*VALUES, magic=magic, keys=KEYS, **fields)


# Motivation: the broker should not have to compress again.


@CODECS
@pytest.mark.parametrize("offset", [0, 2])
def test_motivation_a_conforming_set_is_opened_and_never_compressed_again(
    caller: Caller, calls: CodecCalls, topic: str, codec: int, offset: int
) -> None:
    """Producers leave the wrapper's offset blank (0) or write that of the last message (Java)."""
    caller.create_topic(topic, message_format_version=V1)
    caller.produce(topic, messages(b"before", magic=1), version=2)
    sent = wrapper(three(1), magic=1, codec=codec, offset=offset)

    assert caller.produce(topic, sent, version=2).base_offset == 1

    assert calls.made() == {f"decompress {NAMES[codec]}": 1}
    (_, stored) = entries(caller.fetch(topic, version=2).records)
    assert stored.value == entries(sent)[0].value
    assert calls.made() == {f"decompress {NAMES[codec]}": 1}, "reading it opened it"


def test_motivation_nothing_that_real_clients_send_in_format_1_is_compressed_again(
    caller: Caller, calls: CodecCalls, topic: str
) -> None:
    """Every set captured from Java, kafka-python, aiokafka and librdkafka, in every codec."""
    caller.create_topic(topic, message_format_version=V1)
    sent = [bytes(raw(vector["bytes"])) for vector in sets(1) if vector["client_version"] != KAFKA]
    compressed = [data for data in sent if entries(data)[0].codec]
    assert len(compressed) > 20

    for data in sent:
        assert caller.produce(topic, data, version=2).error_code == 0

    assert set(calls.made()) == {f"decompress {name}" for name in NAMES.values()}
    stored = entries(read_through(caller, topic, version=2))
    assert [entry.value for entry in stored] == [e.value for data in sent for e in entries(data)]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, 4])
def test_motivation_a_batch_of_format_2_is_not_even_opened(
    caller: Caller, calls: CodecCalls, topic: str, codec: int
) -> None:
    """What became of the idea: bytes 0..7 of a batch say where its first record is."""
    caller.create_topic(topic)
    sent = batch(b"a" * 100, b"b" * 100, codec=codec)

    assert caller.produce(topic, sent, version=9).base_offset == 0
    fetched = bytes(caller.fetch(topic, version=10).records)

    assert calls.made() == {}
    assert fetched[16:] == sent[16:]


# Public interfaces: the message format.


def test_format_the_offset_of_a_wrapper_is_that_of_its_last_message(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, message_format_version=V1)
    for _ in range(3):
        caller.produce(topic, wrapper(three(1), magic=1), version=2)

    stored = entries(caller.fetch(topic, version=2).records)

    assert [entry.offset for entry in stored] == [2, 5, 8]
    assert [[one.offset for one in entry.inner()] for entry in stored] == [[0, 1, 2]] * 3


def test_format_on_disk_the_offset_comes_first_and_then_the_size(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    """One table of the text has them the other way round; nothing that shipped did (records 13)."""
    caller.create_topic(topic, message_format_version=V1)
    caller.produce(topic, messages(b"x", b"y", magic=1), version=2)

    on_disk = log_bytes(broker.data, topic)

    assert [entry.offset for entry in entries(on_disk)] == [0, 1]
    assert on_disk[:8] == bytes(8)
    assert on_disk[8:12] == (len(on_disk) // 2 - 12).to_bytes(4, "big")


@pytest.mark.parametrize("version", [V0, V1, V2])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_format_keys_and_values_of_length_minus_1_are_absent_and_not_empty(
    caller: Caller, topic: str, version: str, codec: int
) -> None:
    caller.create_topic(topic, message_format_version=version)
    sent = wrapper(three(1), magic=1, codec=codec) if codec else three(1)
    caller.produce(topic, sent, version=2)

    for fetch in (1, 3, 10):
        found = seen(caller.fetch(topic, version=fetch).records)
        assert [(record.key, record.value) for record in found] == list(
            zip(KEYS, VALUES, strict=True)
        )


def test_format_the_magic_byte_tells_the_format(caller: Caller, topic: str) -> None:
    for number, version in enumerate((V0, V1, V2)):
        caller.create_topic(f"{topic}-{number}", message_format_version=version)
        caller.produce(f"{topic}-{number}", messages(b"x", magic=1), version=2)
        assert magics(caller.fetch(f"{topic}-{number}", version=4).records) == [number]


# Change the usage of the offset field.


def test_usage_the_offsets_inside_are_verified_and_the_checksums_too(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, message_format_version=V1)
    inside = bytearray(three(1))
    inside[-1] ^= 1

    refused = caller.produce(topic, wrapper(bytes(inside), magic=1), version=2)

    assert refused.error_code == ErrorCode.CORRUPT_MESSAGE
    assert caller.end_offset(topic) == 0


@CODECS
@pytest.mark.parametrize("inside", [[0, 2, 5], [7, 8, 9], [0, 0, 0]])
def test_usage_offsets_that_are_not_contiguous_are_given_anew_and_not_refused(
    caller: Caller, calls: CodecCalls, topic: str, inside: list[int], codec: int
) -> None:
    """A mirror of a compacted topic sends holes; the text decides to fill them."""
    caller.create_topic(topic, message_format_version=V1)
    sent = wrapper(three(1, offsets=inside), magic=1, codec=codec, offset=inside[-1])

    assert caller.produce(topic, sent, version=2).error_code == 0

    (stored,) = entries(caller.fetch(topic, version=2).records)
    assert [one.offset for one in stored.inner()] == [0, 1, 2]
    assert stored.offset == 2
    if inside != [7, 8, 9]:
        assert calls.made()[f"compress {NAMES[codec]}"] == 1


def test_usage_setting_the_offset_touches_only_the_first_bytes_of_the_set(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, message_format_version=V1)
    sent = wrapper(three(1), magic=1, timestamp_ms=NOW_MS + 2)
    caller.produce(topic, sent, version=2)
    caller.produce(topic, sent, version=2)

    on_disk = log_bytes(broker.data, topic)

    assert on_disk == b"".join(last.to_bytes(8, "big") + sent[8:] for last in (2, 5))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_usage_a_wrapper_with_holes_is_read_with_its_true_offsets(
    own_broker: BrokerProcess, topic: str, codec: str
) -> None:
    """The cleaner leaves holes. None runs here yet, so what Kafka's left is laid into the files."""
    (stored,) = [v for v in sets(1) if v["id"] == f"java-{KAFKA}-v1-{codec}-compacted-holes"]
    expected = [
        (record["offset"], record["key"], record["value"])
        for entry in stored["expect"]
        for record in entry["records"]
    ]
    assert [offset for offset, _, _ in expected] == [5002, 5005, 5009]
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic(topic, message_format_version=V1)
        caller.produce(topic, messages(b"x", magic=1), version=2)
    own_broker.kill()
    lay_in(own_broker.data / f"{topic}-0", bytes(raw(stored["bytes"])))
    own_broker.start()

    with Caller(own_broker.host, own_broker.port) as caller:
        for version in (0, 1, 2, 3, 4):
            found = seen(read_through(caller, topic, version=version))
            assert [(r.offset, blob(r.key), blob(r.value)) for r in found] == expected
        for offset in (5003, 5005, 5006, 5009):
            (*_, last) = seen(caller.fetch(topic, offset, version=1).records)
            assert last.offset == 5009
        assert caller.produce(topic, messages(b"z", magic=1), version=2).base_offset == 5010


def lay_in(folder: Path, data: bytes) -> None:
    """As if Kafka had written it, in whose logs offsets may be missing anywhere."""
    (folder.parent / "taken-over-checkpoint").unlink()
    for path in folder.iterdir():
        if path.suffix in (".index", ".timeindex"):
            path.unlink()
    (folder / "00000000000000000000.log").write_bytes(data)


# Time based rolling.


def test_rolling_by_time_counts_from_the_first_message_of_the_segment(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    """By what the messages say, not by the time the file has; as shipped, from the first append."""
    caller.create_topic(topic, message_format_version=V1, segment_ms="60000")
    for after_ms in (0, 59_000, 30_000, 61_000, 0):
        sent = messages(b"x", magic=1, times_ms=[NOW_MS + after_ms])
        caller.produce(topic, sent, version=2)

    logs = sorted(path.name for path in (broker.data / f"{topic}-0").glob("*.log"))

    assert logs == ["00000000000000000000.log", "00000000000000000003.log"]


# Time based search: records.md 13, `.timeindex` by bytes and not by minute.


def test_search_a_time_is_found_inside_a_compressed_set(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, message_format_version=V1)
    times = [NOW_MS, NOW_MS + 1000, NOW_MS + 2000]
    caller.produce(topic, wrapper(three(1, times_ms=times), magic=1), version=2)

    found = caller.offset(topic, NOW_MS + 500, version=1)

    assert (found.offset, found.timestamp) == (1, NOW_MS + 1000)


# message.format.version.


def test_setting_the_format_is_named_by_a_release_and_not_by_the_magic_byte(
    caller: Caller, topic: str
) -> None:
    """The text gives the magic byte as value; shipped were version names (records.md 13)."""
    caller.create_topic(topic)

    for wrong in ("0", "1", "2"):
        assert change(caller, topic, message_format_version=wrong) == ErrorCode.INVALID_CONFIG
    for right in ("0.8.2", "0.9.0.1", "0.10.0-IV1", "0.11.0", "3.9"):
        assert change(caller, topic, message_format_version=right) == 0


@pytest.mark.parametrize(("stored", "newest"), [(V0, 0), (V1, 2), (V2, 4)])
def test_setting_a_consumer_that_knows_the_format_gets_the_bytes_on_disk(
    broker: BrokerProcess, caller: Caller, calls: CodecCalls, topic: str, stored: str, newest: int
) -> None:
    caller.create_topic(topic, message_format_version=stored)
    caller.produce(topic, wrapper(three(1), magic=1), version=2)
    caller.produce(topic, three(1), version=2)
    on_disk = log_bytes(broker.data, topic)
    done = calls.made()

    for version in range(newest, 18, 1):
        if version < 13:
            assert bytes(caller.fetch(topic, version=version).records) == on_disk, version

    assert calls.made() == done, "something was opened for reading"


@CODECS
def test_setting_a_consumer_that_does_not_know_the_format_gets_an_older_one(
    caller: Caller, calls: CodecCalls, topic: str, codec: int
) -> None:
    caller.create_topic(topic, message_format_version=V1)
    caller.produce(topic, wrapper(three(1), magic=1, codec=codec), version=2)

    (fetched,) = entries(caller.fetch(topic, version=1).records)

    assert (fetched.magic, fetched.codec, fetched.offset) == (0, codec, 2)
    assert [(one.magic, one.offset) for one in fetched.inner()] == [(0, 0), (0, 1), (0, 2)]
    assert calls.made()[f"compress {NAMES[codec]}"] == 1


# Migration, phase 1: format 0 on disk.


@pytest.mark.parametrize(("produce", "magic"), [(1, 0), (2, 1)])
def test_phase_1_offsets_are_absolute_and_compressed_again_for_either_producer(
    caller: Caller, calls: CodecCalls, topic: str, produce: int, magic: int
) -> None:
    caller.create_topic(topic, message_format_version=V0)
    caller.produce(topic, messages(b"before", magic=0), version=0)

    answer = caller.produce(topic, wrapper(three(magic), magic=magic), version=produce)

    assert (answer.error_code, answer.base_offset) == (0, 1)
    assert calls.made()["compress gzip"] == 1
    (_, stored) = entries(caller.fetch(topic, version=0).records)
    assert (stored.magic, stored.offset) == (0, 3)
    assert [one.offset for one in stored.inner()] == [1, 2, 3]


@pytest.mark.parametrize("fetch", [1, 2])
def test_phase_1_every_consumer_is_sent_what_is_on_disk(
    broker: BrokerProcess, caller: Caller, calls: CodecCalls, topic: str, fetch: int
) -> None:
    caller.create_topic(topic, message_format_version=V0)
    caller.produce(topic, wrapper(three(0), magic=0), version=1)
    caller.produce(topic, three(1), version=2)
    done = calls.made()

    fetched = bytes(caller.fetch(topic, version=fetch).records)

    assert fetched == log_bytes(broker.data, topic)
    assert set(magics(fetched)) == {0}
    assert calls.made() == done


# Migration, phase 2: format 1 on disk.


def test_phase_2_a_set_of_an_old_producer_gets_relative_offsets_and_is_compressed_again(
    caller: Caller, calls: CodecCalls, topic: str
) -> None:
    caller.create_topic(topic, message_format_version=V1)
    caller.produce(topic, messages(b"before", magic=1), version=2)

    assert caller.produce(topic, wrapper(three(0), magic=0), version=1).base_offset == 1

    assert calls.made() == {"decompress gzip": 1, "compress gzip": 1}
    (_, stored) = entries(caller.fetch(topic, version=2).records)
    assert (stored.magic, stored.offset) == (1, 3)
    assert [one.offset for one in stored.inner()] == [0, 1, 2]


def test_phase_2_a_set_of_a_new_producer_is_not_compressed_again(
    caller: Caller, calls: CodecCalls, topic: str
) -> None:
    caller.create_topic(topic, message_format_version=V1)

    assert caller.produce(topic, wrapper(three(1), magic=1), version=2).base_offset == 0

    assert calls.made() == {"decompress gzip": 1}


def test_phase_2_old_consumers_are_converted_for_and_new_ones_are_not(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, message_format_version=V1)
    caller.produce(topic, wrapper(three(1), magic=1), version=2)
    caller.produce(topic, three(1), version=2)

    old, new = (caller.fetch(topic, version=version).records for version in (1, 2))

    assert set(magics(old)) == {0}
    assert bytes(new) == log_bytes(broker.data, topic)
    assert [(r.offset, r.key, r.value) for r in seen(old)] == [
        (r.offset, r.key, r.value) for r in seen(new)
    ]


@pytest.mark.parametrize("stored", [V0, V1, V2])
@pytest.mark.parametrize("produce", [0, 1, 2])
def test_producers_notice_nothing_of_either_phase(
    caller: Caller, topic: str, stored: str, produce: int
) -> None:
    """ "No impact": the same request has the same answer, whatever is stored."""
    caller.create_topic(topic, message_format_version=stored)
    sent = three(produce // 2)

    answers = [caller.produce(topic, sent, version=produce) for _ in range(2)]

    assert [(a.error_code, a.base_offset, a.log_append_time_ms) for a in answers] == [
        (0, 0, -1),
        (0, 3, -1),
    ]


def test_the_beginning_of_phase_2_a_segment_may_hold_both_formats(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, message_format_version=V0)
    caller.produce(topic, wrapper(three(1), magic=1), version=2)
    assert change(caller, topic, message_format_version=V1) == 0
    caller.produce(topic, wrapper(three(1), magic=1), version=2)

    old, new = (read_through(caller, topic, version=version) for version in (1, 2))

    assert magics(old) == [0, 0]
    assert magics(new) == [0, 1]
    assert new == log_bytes(broker.data, topic)
    assert [r.offset for r in seen(old)] == [r.offset for r in seen(new)] == list(range(6))


# To canary a broker: here one topic stands for the one broker.


def test_canary_one_topic_is_switched_and_its_neighbours_are_not(
    caller: Caller, topic: str
) -> None:
    for name in (topic, f"{topic}-2"):
        caller.create_topic(name, message_format_version=V0)
    assert change(caller, topic, message_format_version=V1) == 0

    for name, magic in ((topic, 1), (f"{topic}-2", 0)):
        caller.produce(name, three(1), version=2)
        assert set(magics(caller.fetch(name, version=2).records)) == {magic}


def test_canary_rolled_back_no_data_has_to_be_thrown_away(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    """The text deletes the data of the canary and copies it from the others. There are no others
    here; what is stored in format 1 is converted for whom it is too new (records.md 9)."""
    caller.create_topic(topic, message_format_version=V0)
    for version in (V0, V1, V0):
        assert change(caller, topic, message_format_version=version) == 0
        caller.produce(topic, wrapper(three(1), magic=1), version=2)

    assert magics(log_bytes(broker.data, topic)) == [0, 1, 0]
    for fetch in (0, 1):
        fetched = read_through(caller, topic, version=fetch)
        assert magics(fetched) == [0, 0, 0]
        assert [r.offset for r in seen(fetched)] == list(range(9))


def test_a_consumer_is_never_sent_a_format_newer_than_its_request(
    caller: Caller, topic: str
) -> None:
    """An old one would fail on it, or, worse, not look at the magic byte, says the text."""
    caller.create_topic(topic)
    for version in (V2, V1, V0, V2):
        assert change(caller, topic, message_format_version=version) == 0
        caller.produce(topic, three(1), version=2)
        caller.produce(topic, batch(b"x", b"y", codec=GZIP), version=3)

    for fetch, newest in ((0, 0), (1, 0), (2, 1), (3, 1), (4, 2)):
        fetched = read_through(caller, topic, version=fetch)
        assert max(magics(fetched)) <= newest
        assert [r.offset for r in seen(fetched)] == list(range(20))


def test_a_wrapper_that_claims_another_offset_is_believed_only_if_it_can_be(
    caller: Caller, topic: str
) -> None:
    """0 is blank, more than the last message's is renumbered, less cannot be."""
    caller.create_topic(topic, message_format_version=V1)
    whole = wrapper(three(1), magic=1)

    codes = []
    for offset in (0, 1, 2, 5):
        sent = offset.to_bytes(8, "big") + whole[8:]
        codes.append(caller.produce(topic, sent, version=2).error_code)

    # Produce v2 does not know INVALID_RECORD and is told CORRUPT_MESSAGE (protocol.md 4.13).
    assert codes == [0, ErrorCode.CORRUPT_MESSAGE, 0, 0]
    found = seen(caller.fetch(topic, version=2).records)
    assert [record.offset for record in found] == list(range(9))
