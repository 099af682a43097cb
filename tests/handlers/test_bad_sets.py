"""Sets of formats 0 and 1 that are not what they say, and batches that must be opened and lie.

What is refused has its code, nothing of it is stored, the other partitions of the request are, and
the log names the client and the topic. Batches of format 2 that are stored as they come are in
test_spoiled_batches, payloads that expand without end in test_bombs.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from protocol.errors import ErrorCode
from protocol.records.builder import build_batch, encode_varint
from protocol.records.compression import compress
from protocol.records.crc import crc32c
from tests.support.caller import NOW_MS, Caller, batch, produce_request
from tests.support.old_sets import (
    GZIP,
    LZ4,
    SNAPPY,
    STAMPED,
    message,
    messages,
    resealed,
    seen,
    wrapper,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker_process import BrokerProcess

CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
TOO_LARGE, TOO_MANY = ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE
TIMESTAMP, FORMAT = ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
CODEC = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
V0, V1, V2 = "0.9.0", "0.10.2", "3.0"
PLAIN = messages(b"a", b"b", b"c", magic=1)
SIZE_AT, MAGIC_AT, KEY_AT = 8, 16, 26


class Refused(NamedTuple):
    """A set, and the code it is refused with by every topic of these settings."""

    records: bytes
    code: ErrorCode
    configs: dict[str, str] = {}  # noqa: RUF012 - never changed


def put(layout: str, position: int, value: int, data: bytes, *, sealed: bool = True) -> bytes:
    """Write a number into the first message, and make its checksum fit unless told not to."""
    changed = bytearray(data)
    struct.pack_into(f">{layout}", changed, position, value)
    size = struct.unpack_from(">i", data, SIZE_AT)[0] + 12
    return resealed(bytes(changed[:size])) + bytes(changed[size:]) if sealed else bytes(changed)


def flipped(position: int, data: bytes) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 0x10
    return bytes(changed)


def wrapped(payload: bytes, codec: int = GZIP) -> bytes:
    return wrapper(payload, magic=1, codec=codec)


def rubbish(codec: int) -> bytes:
    """A wrapper whose value is no stream of its codec."""
    return message(b"\xa5\x5a" * 40, magic=1, attributes=codec, timestamp_ms=NOW_MS)


WINDOW = {"message_timestamp_difference_max_ms": "60000"}
COMPACTED = {"cleanup_policy": "compact"}
KEYED = messages(b"a", b"b", magic=1, keys=[b"k", None])

OLD_SETS = {
    "checksum of a message": Refused(flipped(12, PLAIN), CORRUPT),
    "a bit of a value": Refused(flipped(-1, PLAIN), CORRUPT),
    "checksum of a wrapper": Refused(flipped(13, wrapped(PLAIN)), CORRUPT),
    "checksum inside a wrapper": Refused(wrapped(flipped(12, PLAIN)), CORRUPT),
    "a bit inside a wrapper": Refused(wrapped(flipped(-1, PLAIN)), CORRUPT),
    "size 13": Refused(put("i", SIZE_AT, 13, PLAIN, sealed=False), CORRUPT),
    "size 0": Refused(put("i", SIZE_AT, 0, PLAIN, sealed=False), CORRUPT),
    "size -1": Refused(put("i", SIZE_AT, -1, PLAIN, sealed=False), CORRUPT),
    "size -2 GiB": Refused(put("i", SIZE_AT, -(2**31), PLAIN, sealed=False), CORRUPT),
    "size 13 inside a wrapper": Refused(
        wrapped(put("i", SIZE_AT, 13, PLAIN, sealed=False)), CORRUPT
    ),
    "size of format 0 in format 1": Refused(
        resealed(struct.pack(">qiIbbii", 0, 14, 0, 1, 0, -1, -1)), CORRUPT
    ),
    "key as long as can be": Refused(put("i", KEY_AT, 2**31 - 1, PLAIN), CORRUPT),
    "key one byte too long": Refused(
        put("i", KEY_AT, 1, message(b"", magic=1, key=b"")), CORRUPT
    ),
    "key beyond the end": Refused(put("i", KEY_AT, 6, message(b"v", magic=1)), CORRUPT),
    "value as long as can be": Refused(put("i", KEY_AT + 4, 2**31 - 1, PLAIN), CORRUPT),
    "value beyond the end": Refused(put("i", KEY_AT + 4, 2, PLAIN[:35]), CORRUPT),
    "value beyond the end inside": Refused(
        wrapped(put("i", KEY_AT + 4, 2, PLAIN[:35])), CORRUPT
    ),
    "magic 3": Refused(put("b", MAGIC_AT, 3, PLAIN), CORRUPT),
    "magic -1": Refused(put("b", MAGIC_AT, -1, PLAIN), CORRUPT),
    "zeros": Refused(bytes(100), CORRUPT),
    "noise": Refused(b"\xa5" * 100, CORRUPT),
    "a wrapper in a wrapper": Refused(wrapped(wrapped(PLAIN)), INVALID),
    "a wrapper behind a message in a wrapper": Refused(wrapped(PLAIN + wrapped(PLAIN)), INVALID),
    "format 0 in a wrapper of format 1": Refused(wrapped(messages(b"a", magic=0)), INVALID),
    "format 1 in a wrapper of format 0": Refused(wrapper(PLAIN, magic=0), INVALID),
    "both formats in a wrapper": Refused(wrapped(PLAIN + messages(b"a", magic=0)), INVALID),
    "both formats side by side": Refused(PLAIN + messages(b"a", magic=0), INVALID),
    "format 1 and a batch": Refused(PLAIN + batch(b"a"), INVALID),
    "two batches": Refused(batch(b"a") + batch(b"b"), INVALID),
    "nothing in a wrapper": Refused(wrapped(b""), INVALID),
    "half a message in a wrapper": Refused(wrapped(PLAIN[:20]), INVALID),
    "a wrapper without a value": Refused(message(None, magic=1, attributes=GZIP), INVALID),
    "a wrapper with an empty value": Refused(message(b"", magic=1, attributes=GZIP), INVALID),
    "a wrapper of offset 1 with 3 messages": Refused(
        wrapper(PLAIN, magic=1, offset=1), INVALID
    ),
    "a wrapper of a negative offset": Refused(wrapper(PLAIN, magic=1, offset=-1), INVALID),
    "zstd": Refused(rubbish(4), INVALID),
    "codec 5": Refused(rubbish(5), INVALID),
    "codec 6": Refused(rubbish(6), INVALID),
    "codec 7": Refused(rubbish(7), INVALID),
    "no gzip": Refused(rubbish(GZIP), INVALID),
    "no snappy": Refused(rubbish(SNAPPY), INVALID),
    "no lz4": Refused(rubbish(LZ4), INVALID),
    "cut gzip": Refused(
        message(compress(GZIP, PLAIN)[:-6], magic=1, attributes=GZIP), INVALID
    ),
    "too old": Refused(PLAIN, TIMESTAMP, WINDOW),
    "too old, in a wrapper": Refused(wrapped(PLAIN), TIMESTAMP, WINDOW),
    "in a time to come": Refused(
        messages(b"a", magic=1, times_ms=[2**63 - 1]), TIMESTAMP, WINDOW
    ),
    "the type of time set": Refused(
        message(b"a", magic=1, timestamp_ms=NOW_MS, attributes=STAMPED), TIMESTAMP
    ),
    "no key": Refused(KEYED, INVALID, COMPACTED),
    "no key, in a wrapper": Refused(wrapped(KEYED), INVALID, COMPACTED),
    "larger than a message may be": Refused(
        messages(b"x" * 1000, magic=1), TOO_LARGE, {"max_message_bytes": "1000"}
    ),
    "larger than a segment": Refused(
        messages(*[b"x" * 100] * 40, magic=1), TOO_MANY, {"segment_bytes": "2000"}
    ),
}  # fmt: skip


def records_batch(*records: bytes, count: int | None = None, codec: int = 0) -> bytes:
    """A batch around these encoded records, which may be anything."""
    data = bytearray(batch(*[b""] * (count or len(records)))[:61])
    data += compress(codec, b"".join(records))
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, codec)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def record(offset_delta: int = 0, *, rest: bytes = b"\x01\x02v\x00") -> bytes:
    body = b"\0\0" + encode_varint(offset_delta) + rest
    return encode_varint(len(body)) + body


ENDLESS = b"\xff" * 12
NEVER_ENDS = {
    "length": records_batch(ENDLESS),
    "time": records_batch(encode_varint(14) + b"\0" + ENDLESS + b"\0"),
    "offset": records_batch(encode_varint(14) + b"\0\0" + ENDLESS),
    "length of the key": records_batch(record(rest=ENDLESS)),
    "length of the value": records_batch(record(rest=b"\x01" + ENDLESS)),
    "count of headers": records_batch(record(rest=b"\x01\x01" + ENDLESS)),
    "length of a header's name": records_batch(record(rest=b"\x01\x01\x02" + ENDLESS)),
    "length of a header's value": records_batch(record(rest=b"\x01\x01\x02\x02h" + ENDLESS)),
}

BATCHES = {
    **{f"{name} without end": Refused(data, INVALID) for name, data in NEVER_ENDS.items()},
    "record one byte too long": Refused(records_batch(record(rest=b"\x01\x02v\x00\x00")), INVALID),
    "record beyond the end": Refused(records_batch(b"\x40" + record()), INVALID),
    "negative length": Refused(records_batch(encode_varint(-5) + record()), INVALID),
    "bytes behind the last record": Refused(records_batch(record(), b"\0\0\0", count=1), INVALID),
    "fewer records than counted": Refused(records_batch(record(), count=2), INVALID),
    "headers without end": Refused(
        records_batch(record(rest=b"\x01\x01" + encode_varint(2**31 - 1))), INVALID
    ),
    "a producer id": Refused(batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0), FORMAT),
    "headers": Refused(build_batch([(NOW_MS, None, b"v", (("h", b"x"),))]), FORMAT),
    "zstd": Refused(batch(b"a", codec=4), CODEC),
    "base offset 5": Refused(b"\0\0\0\0\0\0\0\x05" + batch(b"a")[8:], INVALID),
}  # fmt: skip

SOURCES = itertools.count(2)


@pytest.fixture
def bad(broker: BrokerProcess) -> Iterator[Caller]:
    """A client with an address of its own: what is refused is logged once a minute for each."""
    number = next(SOURCES)
    caller = Caller(broker.host, broker.port, client_id=f"bad-{number}")
    caller.socket.close()
    source = f"127.0.{number // 250}.{number % 250 + 2}"
    caller.socket = socket.create_connection(
        (broker.host, broker.port), timeout=10, source_address=(source, 0)
    )
    yield caller
    caller.close()


def check_refused(
    broker: BrokerProcess, bad: Caller, topic: str, refused: Refused, version: int
) -> None:
    """Partition 1 of this topic with two partitions gets the set, partition 0 a good one."""
    good = messages(b"before", magic=1, keys=[b"k"], times_ms=[-1])
    for index in (0, 1):
        assert bad.produce(topic, good, partition=index, version=2).error_code == 0
    request = produce_request((topic, 1, refused.records), (topic, 0, good), (topic, 1, good))
    if version > 2:
        request = produce_request((topic, 1, refused.records))

    entries = [answered.partition_responses[0] for answered in bad.call(request, version).responses]

    expected = CORRUPT if refused.code == INVALID and version < 8 else refused.code
    assert (entries[0].error_code, entries[0].base_offset) == (expected, -1)
    assert [(entry.error_code, entry.base_offset) for entry in entries[1:]] == [(0, 1)] * (
        len(entries) - 1
    )
    stored = 1 + (len(entries) > 1)
    for index in (0, 1):
        assert bad.end_offset(topic, index) == stored
        found = seen(bad.fetch(topic, partition=index, version=4).records)
        assert [one.value for one in found] == [b"before"] * stored
    check_logged(broker, bad, topic, refused.code)


def check_logged(broker: BrokerProcess, bad: Caller, topic: str, code: ErrorCode) -> None:
    wanted = (f"client_id={bad.client_id} ", f"topic={topic}", f"code={code.name}")
    deadline = time.monotonic() + 5
    while True:
        lines = [line for line in broker.output().splitlines() if "batch refused" in line]
        if any(all(fact in f"{line} " for fact in wanted) for line in lines):
            return
        assert time.monotonic() < deadline, (wanted, lines[-3:])
        time.sleep(0.01)


@pytest.mark.parametrize("release", [V0, V1, V2])
@pytest.mark.parametrize("case", OLD_SETS)
def test_a_bad_set_is_refused_whole_and_alone(
    broker: BrokerProcess, bad: Caller, topic: str, case: str, release: str
) -> None:
    refused = OLD_SETS[case]
    if refused.code == TIMESTAMP and release == V0 and refused.configs:
        pytest.skip("what is stored has no times")
    bad.create_topic(topic, partitions=2, message_format_version=release, **refused.configs)

    check_refused(broker, bad, topic, refused, 2)


@pytest.mark.parametrize("release", [V0, V1])
@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("case", BATCHES)
def test_a_bad_batch_is_refused_where_its_records_have_to_be_rewritten(
    broker: BrokerProcess, bad: Caller, topic: str, case: str, version: int, release: str
) -> None:
    bad.create_topic(topic, partitions=2, message_format_version=release)

    check_refused(broker, bad, topic, BATCHES[case], version)


@pytest.mark.parametrize("case", [name for name in BATCHES if BATCHES[name].code == INVALID])
@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_a_bad_batch_is_refused_where_it_has_to_be_compressed(
    broker: BrokerProcess, bad: Caller, topic: str, case: str, codec: str
) -> None:
    bad.create_topic(topic, partitions=2, compression_type=codec)

    check_refused(broker, bad, topic, BATCHES[case], 9)


# What looks bad and is not.


@pytest.mark.parametrize("release", [V0, V1, V2])
@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("cut", [1, 11, 12, 17, 30])
def test_a_message_cut_off_at_the_end_is_not_there(
    caller: Caller, topic: str, release: str, version: int, cut: int
) -> None:
    """Case 10. Clients of that time sent such sets; nobody ever minded."""
    caller.create_topic(topic, message_format_version=release)
    one = messages(b"whole", magic=1)

    answer = caller.produce(topic, one + messages(b"cut off", magic=1)[:cut], version=version)

    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert [r.value for r in seen(caller.fetch(topic, version=4).records)] == [b"whole"]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("records", [None, b"", b"\0", PLAIN[:30]])
def test_an_empty_set_succeeds_without_an_offset(
    caller: Caller, topic: str, records: bytes | None, version: int
) -> None:
    """Case 11."""
    caller.create_topic(topic)

    answer = caller.produce(topic, records, version=version)

    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, -1, -1)
    assert caller.end_offset(topic) == 0


@pytest.mark.parametrize("release", [V0, V1, V2])
@pytest.mark.parametrize("offsets", [[7, 7, 7], [-1, -1, -1], [2, 1, 0], [2**63 - 1, 0, -(2**63)]])
def test_offsets_of_plain_messages_mean_nothing(
    caller: Caller, topic: str, release: str, offsets: list[int]
) -> None:
    caller.create_topic(topic, message_format_version=release)

    sent = messages(b"a", b"b", b"c", magic=1, offsets=offsets)

    assert caller.produce(topic, sent, version=2).base_offset == 0
    found = seen(caller.fetch(topic, version=4).records)
    assert [(r.offset, r.value) for r in found] == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_every_negative_length_means_null(caller: Caller, topic: str, length: int) -> None:
    caller.create_topic(topic)
    sent = put("i", KEY_AT + 4, length, message(None, magic=1, timestamp_ms=NOW_MS))

    assert caller.produce(topic, sent, version=2).error_code == 0
    (found,) = seen(caller.fetch(topic, version=4).records)
    assert (found.key, found.value) == (None, None)


@pytest.mark.parametrize(
    "configs",
    [
        {"message_format_version": V0},
        {"message_format_version": V1},
        {"compression_type": "gzip"},
        {"cleanup_policy": "compact"},
    ],
)
def test_records_that_claim_one_offset_get_one_each_or_are_refused(
    caller: Caller, topic: str, configs: dict[str, str]
) -> None:
    """Case 17, where the batch is opened: no two records are stored under one offset. Compressed
    ones are refused, as a broker would have to compress them again."""
    caller.create_topic(topic, 1, **configs)
    thrice = [record(0, rest=b"\x02k\x02v\x00")] * 3

    answer = caller.produce(topic, records_batch(*thrice), version=9)
    refused = caller.produce(topic, records_batch(*thrice, codec=LZ4), version=9)

    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert (refused.error_code, refused.base_offset) == (INVALID, -1)
    assert [r.offset for r in seen(caller.fetch(topic, version=4).records)] == [0, 1, 2]


@pytest.mark.parametrize("release", [V0, V1, V2])
def test_without_acks_a_bad_set_closes_the_connection(
    broker: BrokerProcess, caller: Caller, topic: str, release: str
) -> None:
    caller.create_topic(topic, message_format_version=release)

    with Caller(broker.host, broker.port) as silent:
        silent.send(produce_request((topic, 0, flipped(12, PLAIN)), acks=0), 0)
        assert silent.closed_by_server()

    assert caller.end_offset(topic) == 0
