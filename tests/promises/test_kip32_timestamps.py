"""KIP-32, timestamps: what it promises, through a running broker and requests of its time.

Each test names the passage it holds us to, by the number of its point in the list of proposed
changes. Where Apache Kafka shipped something else than the text says, the test says so and follows
Kafka (records.md 13). Retention by the last entry of the time index (6.2) is in test_retention.py.
"""

from __future__ import annotations

import random
import struct
import time
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.records.builder import build_batch
from tests.support.broker_process import BrokerProcess
from tests.support.caller import NOW_MS, Caller
from tests.support.old_sets import (
    GZIP,
    LZ4,
    SNAPPY,
    STAMPED,
    entries,
    log_bytes,
    message,
    messages,
    read_through,
    seen,
    wrapper,
)
from tests.support.topic_changes import change

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.scraped import CodecCalls

V0, V1, V2 = "0.9.0", "0.10.2", "3.0"
LATEST_FIRST = (NOW_MS + 9_000, NOW_MS, NOW_MS + 4_000)
LONG_MAX = 2**63 - 1
CODECS = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4"}


def now_ms() -> int:
    return int(time.time() * 1000)


def sent(times_ms: Sequence[int], *, magic: int = 1, codec: int = 0) -> bytes:
    """A record per time, as a set of this format."""
    values = [b"%d" % number for number in range(len(times_ms))]
    if magic == 2:
        rows = [(at, None, value, ()) for at, value in zip(times_ms, values, strict=True)]
        return build_batch(rows, codec=codec)
    plain = messages(*values, magic=magic, times_ms=times_ms)
    return wrapper(plain, magic=magic, codec=codec) if codec else plain


def times(caller: Caller, topic: str, *, version: int = 4) -> list[int]:
    """The times that a consumer gets."""
    data = read_through(caller, topic, version=version)
    return [record.timestamp_ms for record in seen(data)]


def code(caller: Caller, topic: str, *times_ms: int, codec: int = 0) -> int:
    """The code that a set of these times is answered with."""
    error_code: int = caller.produce(topic, sent(times_ms, codec=codec), version=2).error_code
    return error_code


# 1. The producer may give a message its time.


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_1_the_time_given_by_the_producer_is_what_a_consumer_gets(
    caller: Caller, topic: str, version: str, codec: int
) -> None:
    caller.create_topic(topic, message_format_version=version)

    answer = caller.produce(topic, sent(LATEST_FIRST, codec=codec), version=2)

    assert answer.log_append_time_ms == -1
    for fetch in (2, 4):
        assert times(caller, topic, version=fetch) == list(LATEST_FIRST)


# 2.1 LogAppendTime.


@CODECS
def test_2_1_a_compressed_message_gets_the_time_in_its_wrapper_and_is_not_compressed_again(
    caller: Caller, calls: CodecCalls, topic: str, codec: int
) -> None:
    """The draft wants -1 inside, and else to overwrite and compress again. As shipped, the inside
    stays as it came and the type bit of the wrapper decides (records.md 13)."""
    caller.create_topic(topic, message_format_version=V1, message_timestamp_type="LogAppendTime")
    before = now_ms()

    answer = caller.produce(topic, sent(LATEST_FIRST, codec=codec), version=2)

    after = now_ms()
    assert calls.made() == {f"decompress {NAMES[codec]}": 1}
    (stored,) = entries(caller.fetch(topic, version=2).records)
    assert before <= stored.timestamp_ms == answer.log_append_time_ms <= after
    assert stored.stamped
    assert [one.timestamp_ms for one in stored.inner()] == list(LATEST_FIRST)
    assert times(caller, topic) == [answer.log_append_time_ms] * 3


def test_2_1_the_time_of_a_plain_message_is_overwritten(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, message_format_version=V1, message_timestamp_type="LogAppendTime")

    answer = caller.produce(topic, sent(LATEST_FIRST), version=2)

    stored = entries(caller.fetch(topic, version=2).records)
    assert abs(answer.log_append_time_ms - now_ms()) < 5_000
    assert {(entry.timestamp_ms, entry.stamped) for entry in stored} == {
        (answer.log_append_time_ms, True)
    }


@pytest.mark.parametrize("stored", [V1, V2])
@pytest.mark.parametrize(("produce", "magic"), [(0, 0), (2, 1), (3, 2)])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_2_1_every_record_has_the_time_of_its_append_whatever_it_came_in(
    caller: Caller, topic: str, stored: str, produce: int, magic: int, codec: int
) -> None:
    caller.create_topic(
        topic, message_format_version=stored, message_timestamp_type="LogAppendTime"
    )
    before = now_ms()

    answer = caller.produce(topic, sent(LATEST_FIRST, magic=magic, codec=codec), version=produce)

    assert answer.error_code == 0
    for fetch in (2, 4):
        (stamp,) = set(times(caller, topic, version=fetch))
        assert before <= stamp <= now_ms()
        if produce >= 2:
            assert stamp == answer.log_append_time_ms
        for entry in entries(caller.fetch(topic, version=2).records):
            assert entry.stamped


def test_2_1_the_difference_limits_nothing_where_the_broker_gives_the_time(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(
        topic,
        message_format_version=V1,
        message_timestamp_type="LogAppendTime",
        message_timestamp_difference_max_ms="0",
    )

    assert code(caller, topic, 0, LONG_MAX) == 0


# 2.2 CreateTime.


@CODECS
def test_2_2_a_wrapper_gets_the_largest_time_of_what_is_in_it(
    caller: Caller, calls: CodecCalls, topic: str, codec: int
) -> None:
    """Producers write 0 or the first one's; it is put right without compressing again."""
    caller.create_topic(topic, message_format_version=V1)
    caller.produce(topic, sent(LATEST_FIRST, codec=codec), version=2)

    (stored,) = entries(caller.fetch(topic, version=2).records)

    assert (stored.timestamp_ms, stored.stamped) == (max(LATEST_FIRST), False)
    assert [one.timestamp_ms for one in stored.inner()] == list(LATEST_FIRST)
    assert "compress " + NAMES[codec] not in calls.made()


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("stored", [V1, V2])
def test_2_2_a_difference_above_the_limit_refuses_the_whole_set(
    caller: Caller, topic: str, stored: str, codec: int
) -> None:
    """The exception of the draft became INVALID_TIMESTAMP, its setting
    message.timestamp.difference.max.ms (records.md 13)."""
    caller.create_topic(
        topic, message_format_version=stored, message_timestamp_difference_max_ms="60000"
    )
    now = now_ms()

    for wrong in (now - 70_000, now + 70_000):
        assert code(caller, topic, now, wrong, now, codec=codec) == ErrorCode.INVALID_TIMESTAMP
        assert caller.end_offset(topic) == 0
    assert code(caller, topic, now, now - 50_000, now + 50_000, codec=codec) == 0
    assert caller.end_offset(topic) == 3


def test_2_2_a_message_without_a_time_is_never_too_old(caller: Caller, topic: str) -> None:
    """So that producers of 0.8 and 0.9 work on; 0.10 itself refused them (records.md 7.2)."""
    caller.create_topic(topic, message_timestamp_difference_max_ms="60000")

    assert code(caller, topic, -1, -1) == 0
    assert caller.produce(topic, messages(b"x", magic=0), version=0).error_code == 0
    assert times(caller, topic) == [-1, -1, -1]


@pytest.mark.parametrize(
    ("name", "refused_ms", "accepted_ms"),
    [("before", -70_000, 70_000), ("after", 70_000, -70_000)],
)
def test_2_2_the_two_sides_can_be_limited_each_for_itself(
    caller: Caller, topic: str, name: str, refused_ms: int, accepted_ms: int
) -> None:
    """The names since 3.6."""
    caller.create_topic(topic, 1, **{f"message_timestamp_{name}_max_ms": "60000"})

    assert code(caller, topic, now_ms() + refused_ms) == ErrorCode.INVALID_TIMESTAMP
    assert code(caller, topic, now_ms() + accepted_ms) == 0


@pytest.mark.parametrize("stored", [V0, V1, V2])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_2_2_the_type_bit_is_the_brokers_to_set(
    caller: Caller, topic: str, stored: str, codec: int
) -> None:
    caller.create_topic(topic, message_format_version=stored)
    plain = message(b"x", magic=1, timestamp_ms=NOW_MS, attributes=0 if codec else STAMPED)
    whole = wrapper(plain, magic=1, attributes=STAMPED) if codec else plain

    refused = caller.produce(topic, whole, version=2)

    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
    assert caller.end_offset(topic) == 0


# 3. What the time index is built from. A follower reads it there; here ListOffsets does.


def test_3_the_time_of_a_wrapper_is_what_the_index_has(
    own_broker: BrokerProcess, topic: str
) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic(topic, message_format_version=V1, index_interval_bytes="0")
        for step in (0, 10_000, -10_000, 20_000):
            at = [moment + step for moment in LATEST_FIRST]
            caller.produce(topic, sent(at, codec=GZIP), version=2)
    own_broker.stop()

    (path,) = (own_broker.data / f"{topic}-0").glob("*.timeindex")

    # The largest time so far and the last offset of the wrapper that has it; none for the first
    # wrapper, behind which there is nothing to find yet, and none that is not larger.
    assert list(struct.iter_unpack(">qi", path.read_bytes())) == [
        (NOW_MS + 19_000, 5),
        (NOW_MS + 29_000, 11),
    ]


@pytest.mark.parametrize("codec", [0, GZIP])
def test_3_the_largest_time_is_found_by_every_version_that_can_ask(
    caller: Caller, topic: str, codec: int
) -> None:
    caller.create_topic(topic, message_format_version=V1)
    for step in range(3):
        at = [moment - step * 1_000 for moment in LATEST_FIRST]
        caller.produce(topic, sent(at, codec=codec), version=2)

    for version in (7, 11):
        found = caller.offset(topic, -3, version=version)
        assert (found.offset, found.timestamp) == (0, max(LATEST_FIRST))


# 4. What a consumer takes for the time of a message.


def test_4_an_inner_time_of_minus_1_stays_so_under_create_time(caller: Caller, topic: str) -> None:
    """The draft takes the wrapper's then. As shipped, only the type bit asks for the wrapper's
    (records.md 13)."""
    caller.create_topic(topic, message_format_version=V1)
    caller.produce(topic, sent([-1, NOW_MS, -1], codec=GZIP), version=2)

    (stored,) = entries(caller.fetch(topic, version=2).records)
    assert (stored.timestamp_ms, stored.stamped) == (NOW_MS, False)
    for found in (times(caller, topic), times(caller, topic, version=2)):
        assert found == [-1, NOW_MS, -1]


def test_4_what_was_stored_before_a_change_of_the_type_keeps_its_time(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, message_format_version=V1)
    caller.produce(topic, sent([NOW_MS], codec=GZIP), version=2)
    assert change(caller, topic, message_timestamp_type="LogAppendTime") == 0
    stamp = caller.produce(topic, sent([NOW_MS], codec=GZIP), version=2).log_append_time_ms
    assert change(caller, topic, message_timestamp_type="CreateTime") == 0
    caller.produce(topic, sent([NOW_MS + 1]), version=2)

    for fetch in (2, 3, 4):
        assert times(caller, topic, version=fetch) == [NOW_MS, stamp, NOW_MS + 1]


# 5. Settings of a topic, with the broker's behind them.


def test_5_both_settings_can_be_a_topics_own_and_the_brokers(tmp_path: Path, topic: str) -> None:
    settings = {
        "log.message.timestamp.type": "LogAppendTime",
        "log.message.timestamp.difference.max.ms": "60000",
        "log.message.format.version": "0.10.2",
    }
    with (
        BrokerProcess(tmp_path / "data", settings=settings) as own,
        Caller(own.host, own.port) as caller,
    ):
        caller.create_topic(topic)
        caller.create_topic(f"{topic}-2", message_timestamp_type="CreateTime")
        caller.create_topic(
            f"{topic}-3",
            message_timestamp_type="CreateTime",
            message_timestamp_difference_max_ms=str(LONG_MAX),
        )

        assert code(caller, topic, NOW_MS) == 0
        assert code(caller, f"{topic}-2", NOW_MS) == ErrorCode.INVALID_TIMESTAMP
        assert code(caller, f"{topic}-3", NOW_MS) == 0

        assert abs(times(caller, topic)[0] - now_ms()) < 10_000
        assert times(caller, f"{topic}-3") == [NOW_MS]
        assert described(caller, topic, "message.timestamp.type") == ("LogAppendTime", 4)
        assert described(caller, f"{topic}-2", "message.timestamp.type") == ("CreateTime", 1)


def described(caller: Caller, topic: str, name: str) -> tuple[str, int]:
    """The value of a topic's setting, and where it comes from: 1 its own, 4 the broker's file."""
    asked = DescribeConfigsRequest.Resource(
        resource_type=2, resource_name=topic, configuration_keys=[name]
    )
    (result,) = caller.call(DescribeConfigsRequest(resources=[asked]), 4).results
    (config,) = result.configs
    return config.value, config.config_source


# 6.1 Searching by time.


@pytest.mark.parametrize("stored", [V1, V2])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_6_1_no_message_after_the_time_searched_for_is_missed(
    caller: Caller, topic: str, stored: str, codec: int
) -> None:
    """Earlier ones may be among those that follow; times need not rise (7.1)."""
    seed = 32
    chance = random.Random(seed)
    caller.create_topic(
        topic, message_format_version=stored, index_interval_bytes="64", segment_bytes="1500"
    )
    stored_times: list[int] = []
    for _ in range(30):
        some = [NOW_MS + chance.randrange(1_000_000) for _ in range(chance.randrange(1, 6))]
        stored_times += some
        assert code(caller, topic, *some, codec=codec) == 0

    for _ in range(60):
        wanted = NOW_MS + chance.randrange(1_100_000)
        found = caller.offset(topic, wanted, version=1)
        later = [at for at, moment in enumerate(stored_times) if moment >= wanted]
        if not later:
            assert (found.offset, found.timestamp) == (-1, -1), f"seed {seed}"
            continue
        assert found.timestamp == stored_times[found.offset] >= wanted, f"seed {seed}"
        assert found.offset == later[0], f"seed {seed}"


@pytest.mark.parametrize("version", [1, 2, 5, 11])
def test_6_1_a_time_after_all_messages_finds_none(caller: Caller, topic: str, version: int) -> None:
    caller.create_topic(topic, message_format_version=V1)
    caller.produce(topic, sent(LATEST_FIRST, codec=GZIP), version=2)

    found = caller.offset(topic, max(LATEST_FIRST) + 1, version=version)

    assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)


# 6.3 Rolling by the earliest message, also after a restart.


def test_6_3_the_time_of_the_first_message_is_known_again_after_a_restart(
    own_broker: BrokerProcess, topic: str
) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic(topic, message_format_version=V1, segment_ms="60000")
        assert code(caller, topic, NOW_MS, codec=GZIP) == 0
        assert code(caller, topic, NOW_MS + 50_000, codec=GZIP) == 0
    own_broker.kill()
    own_broker.start()

    with Caller(own_broker.host, own_broker.port) as caller:
        assert code(caller, topic, NOW_MS + 70_000, codec=GZIP) == 0

    logs = sorted(path.name for path in (own_broker.data / f"{topic}-0").glob("*.log"))
    assert logs == ["00000000000000000000.log", "00000000000000000002.log"]


# 8. What the limit makes of the times.


def test_8_without_a_limit_any_time_is_kept_and_with_0_none_but_now(
    caller: Caller, topic: str
) -> None:
    """0 does not make the broker give the time, as shipped: it refuses every other."""
    caller.create_topic(topic, message_format_version=V1)
    strange = [0, NOW_MS, LONG_MAX, -1]
    assert code(caller, topic, *strange) == 0
    assert times(caller, topic) == strange

    assert change(caller, topic, message_timestamp_difference_max_ms="0") == 0
    assert code(caller, topic, now_ms() - 10_000) == ErrorCode.INVALID_TIMESTAMP


# The migration.


@pytest.mark.parametrize("codec", [0, GZIP])
def test_phase_1_the_time_of_a_new_producer_is_ignored(
    broker: BrokerProcess, caller: Caller, topic: str, codec: int
) -> None:
    caller.create_topic(topic, message_format_version=V0)

    assert code(caller, topic, *LATEST_FIRST, codec=codec) == 0

    assert {entry.magic for entry in entries(log_bytes(broker.data, topic))} == {0}
    for fetch in (0, 2, 4):
        assert times(caller, topic, version=fetch) == [-1, -1, -1]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_phase_2_a_message_of_an_old_producer_has_no_time_or_the_brokers(
    caller: Caller, calls: CodecCalls, topic: str, kind: str, codec: int
) -> None:
    caller.create_topic(topic, message_format_version=V1, message_timestamp_type=kind)
    before = now_ms()

    set_of_0 = sent([0, 0, 0], magic=0, codec=codec)
    assert caller.produce(topic, set_of_0, version=1).error_code == 0

    assert calls.made().get("compress gzip", 0) == bool(codec)
    stored = entries(caller.fetch(topic, version=2).records)
    for entry in stored:
        assert entry.magic == 1
        if kind == "CreateTime":
            assert (entry.timestamp_ms, entry.stamped) == (-1, False)
        else:
            assert before <= entry.timestamp_ms <= now_ms()
            assert entry.stamped


@pytest.mark.parametrize("codec", [0, GZIP])
def test_phase_2_an_old_consumer_gets_messages_without_their_times(
    caller: Caller, topic: str, codec: int
) -> None:
    caller.create_topic(topic, message_format_version=V1)
    assert code(caller, topic, *LATEST_FIRST, codec=codec) == 0

    found = seen(caller.fetch(topic, version=1).records)

    assert [(r.offset, r.timestamp_ms, r.value) for r in found] == [
        (0, -1, b"0"),
        (1, -1, b"1"),
        (2, -1, b"2"),
    ]


@pytest.mark.parametrize("codec", [0, GZIP])
def test_rolled_back_what_was_stored_with_times_keeps_them(
    caller: Caller, topic: str, codec: int
) -> None:
    """In the text the data goes; here it stays, and so do its times for those who know them."""
    caller.create_topic(topic, message_format_version=V1)
    assert code(caller, topic, *LATEST_FIRST, codec=codec) == 0
    assert change(caller, topic, message_format_version=V0) == 0
    assert code(caller, topic, *LATEST_FIRST, codec=codec) == 0

    assert times(caller, topic, version=2) == [*LATEST_FIRST, -1, -1, -1]
    assert times(caller, topic, version=1) == [-1] * 6
