"""A clock that jumps deletes nothing, and a broker that was stopped forgets no member for that."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from storage.receive_times import Stretch, decode
from storage.trusted_time import ClockState
from tests.support.administrator import Administrator
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch
from tests.support.group_caller import Member, assignment
from tests.support.scraped import counters
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

YEARS_MS = 10 * 365 * 24 * 3600 * 1000
BROKER = 4
"""The kind of resource."""
WITHIN_S = 20.0


def awaited(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start(caller: Caller, topic: str) -> int:
    return caller.offset(topic, -2).offset


def move_into_the_past(data: Path, topic: str) -> None:
    """Have a stopped directory say that it was used ten years ago: our clock has jumped since."""
    clock = data / "clock-checkpoint"
    noted = ClockState.decode(clock.read_bytes(), str(clock))
    earlier = ClockState(noted.trusted_ms - YEARS_MS, noted.wall_ms - YEARS_MS)
    clock.write_bytes(earlier.encode())
    times = data / f"{topic}-0/receive-times-checkpoint"
    stretches = [
        Stretch(one.offset, one.first_ms - YEARS_MS, one.last_ms - YEARS_MS)
        for one in decode(times.read_bytes(), str(times))
    ]
    lines = [f"{one.offset} {one.first_ms} {one.last_ms}\n" for one in stretches]
    times.write_text(f"0\n{len(lines)}\n{''.join(lines)}")


def test_a_clock_that_jumped_ten_years_deletes_nothing_until_somebody_says_that_it_is_right(
    tmp_path: Path,
) -> None:
    settings = {
        "log.initial.task.delay.ms": "0",
        "log.retention.check.interval.ms": "20",
        "log.retention.ms": "3600000",
        "metrics.port": str(free_port()),
    }
    with (
        BrokerProcess(tmp_path, settings=settings) as broker,
        Caller(broker.host, broker.port) as caller,
    ):
        caller.create_topic("kept")
        caller.produce("kept", batch(b"a", b"b"))
    move_into_the_past(tmp_path, "kept")

    with BrokerProcess(tmp_path, settings=settings) as broker:
        port = int(settings["metrics.port"])
        with Caller(broker.host, broker.port) as caller:
            awaited(lambda: "the clock has jumped" in broker.output())
            assert abs(1000 * counters(port)["clock_jump_seconds"] - YEARS_MS) < 60_000
            # Retention goes on meanwhile, by the time that is believed.
            caller.create_topic("small", retention_bytes="0")
            caller.produce("small", batch(b"x"))
            awaited(lambda: start(caller, "small") == 1)
            assert start(caller, "kept") == 0

            with Administrator(broker.host, broker.port) as admin:
                admin.alter(BROKER, "", clock_jump_wait_ms="0")

            awaited(lambda: start(caller, "kept") == 2)
            assert counters(port)["clock_jump_seconds"] == 0


def test_a_member_whose_heartbeat_waits_in_a_socket_outlives_a_stopped_broker(
    tmp_path: Path,
) -> None:
    settings = {"group.min.session.timeout.ms": "500"}
    with (
        BrokerProcess(tmp_path, settings=settings) as broker,
        Member.connect(broker, "readers", session_ms=1500) as member,
    ):
        member.enter()
        member.sync({member.member_id: assignment("t", 0)})
        os.kill(broker.pid, signal.SIGSTOP)
        member.send_heartbeat()
        time.sleep(3)
        os.kill(broker.pid, signal.SIGCONT)

        assert member.heartbeat_code() == 0
        assert member.heartbeat() == 0


def test_a_member_that_stays_away_is_forgotten_after_a_stop_too(tmp_path: Path) -> None:
    settings = {"group.min.session.timeout.ms": "500"}
    with (
        BrokerProcess(tmp_path, settings=settings) as broker,
        Member.connect(broker, "readers", session_ms=1000) as member,
        Member.connect(broker, "readers", session_ms=30_000) as other,
    ):
        member.enter()
        member.sync({member.member_id: assignment("t", 0)})
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(broker.pid, signal.SIGCONT)

        # The rebalance that it asks for waits for no one else.
        assert len(other.enter().members) == 1
