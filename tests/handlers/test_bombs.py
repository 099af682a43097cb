"""Small payloads that expand to a gibibyte, or say so: refused, in bounded memory, beside the loop.

The bounds are max.decompressed.batch.bytes and max.decompression.ratio; Apache Kafka has none.
"""

from __future__ import annotations

import gzip
import os
import struct
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.records.crc import crc32c
from protocol.registry import APIS
from tests.records.bombs import EXPANDED_BYTES, gzip_bomb, lz4_bomb, zstd_bomb
from tests.support.caller import Caller, Target, batch, fetch_request, produce_request
from tests.support.old_sets import GZIP, LZ4, SNAPPY, ZSTD, message, messages, seen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.broker_process import BrokerProcess

MIB = 1 << 20
DECOMPRESSED_MAX = 32 * MIB

#: What the broker may grow by: a few times the bound, and the largest of these requests, which is
#: in memory twice. To keep what each of them expanded to would take gigabytes by the last test.
GROWTH_MAX = 8 * DECOMPRESSED_MAX
BROKER_IDLE_MAX = 80 * MIB

#: Somebody else who asks all the time is answered at least so often. A loop that did the work of
#: these requests itself would answer once or twice.
ANSWERS_MIN = 10

#: A claim is seen before anything is done about it, however busy the machine is.
CLAIM_SEEN_WITHIN_S = 5.0


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "max.decompressed.batch.bytes": str(DECOMPRESSED_MAX),
        "message.max.bytes": str(8 * MIB),
    }


def wrapper_of(payload: bytes, codec: int, magic: int = 1) -> bytes:
    return message(payload, magic=magic, attributes=codec)


def batch_of(payload: bytes, codec: int, count: int = 3) -> bytes:
    data = bytearray(batch(*[b""] * count)[:61] + payload)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, codec)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def raw_snappy(claimed: int, size: int) -> bytes:
    length = b""
    while claimed > 127:
        length += bytes([claimed & 127 | 128])
        claimed >>= 7
    return (length + bytes([claimed])).ljust(size, b"\0")


def xerial(claimed: int, size: int) -> bytes:
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + struct.pack(">i", size) + raw_snappy(claimed, size)


def sized_lz4(claimed: int, size: int) -> bytes:
    """A frame that states its content size; the header checksum is the right one for it."""
    import lz4.frame

    frame = lz4.frame.compress(
        bytes(MIB), store_size=True, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB
    )
    return bytes(frame[:6] + struct.pack("<Q", claimed) + frame[14:]).ljust(size, b"\0")


def sized_zstd(claimed: int, size: int) -> bytes:
    """A frame of a single segment with a content size of 8 bytes."""
    return (bytes.fromhex("28b52ffde0") + struct.pack("<Q", claimed)).ljust(size, b"\0")


BOMBS = {
    "gzip, format 0": (wrapper_of(gzip_bomb(), GZIP, 0), 1),
    "gzip, format 1": (wrapper_of(gzip_bomb(), GZIP), 2),
    "gzip, format 2": (batch_of(gzip_bomb(), GZIP), 9),
    "lz4, format 1": (wrapper_of(lz4_bomb(), LZ4), 2),
    "lz4, format 2": (batch_of(lz4_bomb(), LZ4), 9),
    "zstd, format 2": (batch_of(zstd_bomb(), ZSTD), 9),
}

CLAIMS = {
    "raw snappy": (wrapper_of(raw_snappy(EXPANDED_BYTES, 1024), SNAPPY), 2),
    "raw snappy, 4 GiB": (wrapper_of(raw_snappy(2**32 - 1, 1024), SNAPPY), 2),
    "xerial snappy": (wrapper_of(xerial(EXPANDED_BYTES, 1024), SNAPPY), 2),
    "xerial snappy, format 2": (batch_of(xerial(EXPANDED_BYTES, 1024), SNAPPY), 9),
    "zstd": (batch_of(sized_zstd(EXPANDED_BYTES, 1024), ZSTD), 9),
    "zstd, 2^63": (batch_of(sized_zstd(2**63, 1024), ZSTD), 9),
}

#: Every set is opened: format 0 and 1 always, format 2 where the codec is to be another.
OPENED = {"compression_type": "gzip", "cleanup_policy": "compact"}


def memory(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


class Pings:
    """Somebody else, who is answered meanwhile."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0

    def _run(self) -> None:
        with Caller(self._broker.host, self._broker.port, timeout_s=60) as caller:
            while not self._done.is_set():
                caller.call(ApiVersionsRequest(), 0)
                self.count += 1
                time.sleep(0.002)

    def __enter__(self) -> Pings:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_bounded_memory_while_others_are_answered(
    broker: BrokerProcess, caller: Caller, topic: str, name: str
) -> None:
    """Cases 15 and 16. Eight at once, so that a loop that did the work would be seen to stand."""
    caller.create_topic(topic, partitions=9, **OPENED)
    records, version = BOMBS[name]
    request = produce_request(*((topic, index, records) for index in range(8)), acks=1)

    with Pings(broker) as pings:
        began = time.monotonic()
        answer = caller.call(request, version)
        took_s = time.monotonic() - began

    codes = {entry.partition_responses[0].error_code for entry in answer.responses}
    assert codes == {ErrorCode.MESSAGE_TOO_LARGE}
    assert pings.count >= ANSWERS_MIN, f"in {took_s:.2f} s"
    assert {caller.end_offset(topic, index) for index in range(9)} == {0}
    assert memory(broker.pid, "VmHWM") < BROKER_IDLE_MAX + GROWTH_MAX


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("name", [name for name in BOMBS if name.endswith("2")])
def test_a_bomb_that_was_stored_unopened_does_no_harm_when_it_has_to_be_converted(
    broker: BrokerProcess, caller: Caller, topic: str, name: str, version: int
) -> None:
    """By default a batch of format 2 is not opened when it comes. Who knows its format gets it."""
    caller.create_topic(topic, partitions=8)
    records, produced = BOMBS[name]
    for index in range(8):
        caller.produce(topic, batch(b"before"), partition=index, version=9)
        assert caller.produce(topic, records, partition=index, version=produced).error_code == 0
    wanted = [Target(topic, 1, index) for index in range(8)]

    with Pings(broker) as pings:
        answer = caller.call(fetch_request(*wanted), version)

    entries = [entry for answered in answer.responses for entry in answered.partitions]
    assert len(entries) == 8
    assert {(entry.error_code, bytes(entry.records)) for entry in entries} == {
        (ErrorCode.CORRUPT_MESSAGE, b"")
    }
    assert pings.count >= ANSWERS_MIN
    assert [r.value for r in seen(caller.fetch(topic, version=version).records)] == [b"before"]
    assert caller.fetch(topic, 1, version=10).error_code == 0
    assert memory(broker.pid, "VmHWM") < BROKER_IDLE_MAX + GROWTH_MAX


@pytest.mark.parametrize("how", ["produced", "converted"])
def test_who_needs_a_thread_for_less_does_not_wait_behind_bombs(
    broker: BrokerProcess, caller: Caller, topic: str, how: str
) -> None:
    """24 sets that expand to as much as they may, and one of 200 KB that comes after them."""
    caller.create_topic(topic, partitions=13, compression_type="lz4")
    zeros = gzip.compress(bytes(DECOMPRESSED_MAX - 1000))
    meant = batch(*[os.urandom(100) for _ in range(2000)], codec=ZSTD)
    bombs: Any
    if how == "produced":
        bomb, produced = batch_of(zeros, GZIP), 9
        bombs = produce_request(*((topic, index, bomb) for index in range(12)), acks=1)
    else:
        caller.create_topic(f"{topic}-stored", partitions=12)
        for index in range(12):
            caller.produce(f"{topic}-stored", batch_of(zeros, GZIP), partition=index, version=9)
        wanted = [Target(f"{topic}-stored", 0, index) for index in range(12)]
        bombs, produced = fetch_request(*wanted), 1

    with ExitStack() as stack:
        others = [
            stack.enter_context(Caller(broker.host, broker.port, timeout_s=60)) for _ in range(2)
        ]
        sent = [other.send(bombs, produced) for other in others]
        caller.socket.settimeout(60)
        assert caller.produce(topic, meant, partition=12, version=9).error_code == 0
        others[-1].see_nothing_come(0)
        for other, correlation_id in zip(others, sent, strict=True):
            other.receive(APIS[type(bombs).key], produced, correlation_id)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_kilobyte_that_claims_a_gibibyte_gets_no_memory_for_it(
    broker: BrokerProcess, caller: Caller, topic: str, name: str
) -> None:
    caller.create_topic(topic, 1, **OPENED)
    records, version = CLAIMS[name]

    began = time.monotonic()
    refused = caller.produce(topic, records, version=version)

    assert time.monotonic() - began < CLAIM_SEEN_WITHIN_S
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert caller.end_offset(topic) == 0
    assert memory(broker.pid, "VmHWM") < BROKER_IDLE_MAX + GROWTH_MAX


def test_a_count_of_records_gets_no_memory_either(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, 1, **OPENED)
    data = bytearray(batch(b"x"))
    struct.pack_into(">i", data, 23, 2**31 - 2)
    struct.pack_into(">i", data, 57, 2**31 - 1)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))

    began = time.monotonic()
    refused = caller.produce(topic, bytes(data), version=9)

    assert time.monotonic() - began < CLAIM_SEEN_WITHIN_S
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert memory(broker.pid, "VmHWM") < BROKER_IDLE_MAX + GROWTH_MAX


def test_the_ratio_refuses_what_the_size_would_let_through(caller: Caller, topic: str) -> None:
    """zstd makes 16 MiB out of half a kilobyte, which is below the size that is allowed."""
    caller.create_topic(topic, 1, **OPENED)
    blocks = 16 * MIB // (128 * 1024)
    bomb = zstd_bomb()[: 6 + 4 * (blocks - 1)] + zstd_bomb()[-4:]

    refused = caller.produce(topic, batch_of(bomb, ZSTD), version=9)

    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.decompression.ratio" in (refused.error_message or "")


def test_what_compresses_well_and_is_meant_is_stored(caller: Caller, topic: str) -> None:
    caller.create_topic(
        topic, message_format_version="0.10.2", message_downconversion_enable="true"
    )
    value = bytes(4 * MIB)
    payload = gzip.compress(messages(value, magic=1))
    assert len(payload) * 900 < len(value)

    assert caller.produce(topic, wrapper_of(payload, GZIP), version=2).error_code == 0
    (found,) = seen(caller.fetch(topic, version=3).records)
    assert found.value == value
