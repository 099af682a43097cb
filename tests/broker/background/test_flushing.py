"""Syncs of written records, under each log.flush.policy."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import pytest

from broker.background import checkpoints
from protocol.messages.produce import ProduceResponse
from storage.disk import DiskFile
from storage.steps import run_here
from tests.broker.network.test_connection import framed
from tests.support.caller import batch, produce_request
from tests.support.fake_connection import FakeClient, InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from storage.log import Log

TOPIC, OTHER = "flushed", "other"
ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1


class Case:
    """A broker with two topics, whose syncs of log files are counted, and can be held back."""

    def __init__(self, broker: InProcessBroker, configs: Mapping[str, str]) -> None:
        self.broker = broker
        for name in (TOPIC, OTHER):
            run_here(broker.running.broker.topics.create(name, 1, dict(configs)))
        self.client: FakeClient = broker.connect()
        self.synced: list[str] = []
        self.held = False

    def log(self, topic: str = TOPIC) -> Log:
        return self.broker.running.broker.directory.logs[topic, 0]

    def produce(self, *values: bytes, acks: int = ACKS_LEADER, topic: str = TOPIC) -> None:
        request = produce_request((topic, 0, batch(*values or (b"v",))), acks=acks)
        self.client.feed(framed(request, 9, 1))
        self.broker.turn()

    def answered(self) -> int:
        return len(self.client.answered())

    def wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        self.broker.turn_until(lambda: time.monotonic() > end_s)

    def unsynced_after(self, seconds: float) -> int:
        """Records that are not synced when this time has passed."""
        self.wait(seconds)
        return self.log().written_offset - self.log().recovery_point


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Case]]:
    running: list[InProcessBroker] = []
    sync = DiskFile.sync
    cases: list[Case] = []

    def counted(file: DiskFile) -> None:
        for case in cases:
            while case.held and file.path.endswith(".log"):
                time.sleep(0.001)
            if file.path.endswith(".log"):
                case.synced.append(file.path.split("/")[-2])
        sync(file)

    monkeypatch.setattr(DiskFile, "sync", counted)

    def start(policy: str, configs: Mapping[str, str] | None = None, **settings: str) -> Case:
        broker = InProcessBroker(tmp_path / "data", log_flush_policy=policy, **settings)
        running.append(broker.__enter__())
        cases.append(Case(broker, configs or {}))
        return cases[-1]

    yield start
    for case in cases:
        case.held = False
    for broker in running:
        broker.__exit__(None, None, None)


def test_ack_answers_acks_all_behind_a_sync_and_the_others_before(
    begin: Callable[..., Case],
) -> None:
    case = begin("ack", {"flush.messages": "1", "flush.ms": "10"})
    case.held = True

    case.produce(acks=ACKS_LEADER)
    assert case.answered() == 1
    case.produce(acks=ACKS_ALL)
    case.wait(0.05)
    assert case.answered() == 1
    case.held = False
    case.broker.turn_until(lambda: case.answered() == 2)

    assert case.log().recovery_point == 2
    case.produce(acks=ACKS_LEADER)
    assert case.unsynced_after(0.3) == 1, "flush.ms belongs to another policy"
    case.broker.turn_until(lambda: case.log().recovery_point == 3, within_s=2)


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER])
def test_interval_answers_without_a_sync_until_flush_messages_are_there(
    begin: Callable[..., Case], acks: int
) -> None:
    case = begin("interval", {"flush.messages": "3"})
    case.held = True

    case.produce(b"0", b"1", acks=acks)
    assert case.answered() == 1
    case.produce(b"2", acks=acks)
    case.wait(0.05)
    assert case.answered() == 1, "the third record is answered when all three are on disk"
    case.held = False
    case.broker.turn_until(lambda: case.answered() == 2)

    assert case.log().recovery_point == 3
    assert set(case.synced) == {f"{TOPIC}-0"}


def test_interval_flushes_what_acks_0_brought_when_flush_messages_are_there(
    begin: Callable[..., Case],
) -> None:
    case = begin("interval", {"flush.messages": "2", "flush.ms": "60000"})

    case.produce(acks=ACKS_NONE)
    assert case.unsynced_after(0.05) == 1
    case.produce(acks=ACKS_NONE)

    case.broker.turn_until(lambda: case.log().recovery_point == 2, within_s=0.5)


def test_interval_flushes_a_record_of_the_age_flush_ms(begin: Callable[..., Case]) -> None:
    case = begin("interval", log_flush_interval_ms="150")
    case.produce()

    assert case.unsynced_after(0.04) == 1
    case.broker.turn_until(lambda: case.log().recovery_point == 1, within_s=0.6)


def test_interval_looks_as_often_as_the_scheduler_key_says(begin: Callable[..., Case]) -> None:
    case = begin("interval", {"flush.ms": "1"}, log_flush_scheduler_interval_ms="400")
    case.produce()

    assert case.unsynced_after(0.15) == 1
    case.broker.turn_until(lambda: case.log().recovery_point == 1, within_s=1)


def test_interval_keeps_a_topic_with_a_long_flush_ms_and_no_other_waiting(
    begin: Callable[..., Case],
) -> None:
    case = begin("interval", log_flush_scheduler_interval_ms="20")
    running = case.broker.running.broker
    run_here(running.topics.configure(running.topics.by_name[OTHER], {"flush.ms": "40"}))
    run_here(running.topics.configure(running.topics.by_name[TOPIC], {"flush.ms": "60000"}))
    case.produce()
    case.produce(topic=OTHER)

    case.broker.turn_until(lambda: case.log(OTHER).recovery_point == 1, within_s=1)

    assert case.unsynced_after(0.1) == 1


def test_interval_without_keys_flushes_within_about_a_second(begin: Callable[..., Case]) -> None:
    case = begin("interval")
    case.produce(acks=ACKS_ALL)
    assert case.answered() == 1

    case.broker.turn_until(lambda: case.log().recovery_point == 1, within_s=2.5)


@pytest.mark.parametrize("policy", ["os", "interval"])
def test_a_sealed_segment_is_synced_soon_whatever_the_keys_say(
    begin: Callable[..., Case], policy: str
) -> None:
    case = begin(policy, {"segment.bytes": "1000", "flush.ms": "600000"})
    case.produce(bytes(600), acks=ACKS_ALL)
    assert case.answered() == 1
    assert case.unsynced_after(1.2) == 1, "it lies in the active segment"

    case.produce(bytes(600), acks=ACKS_ALL)
    assert len(case.log().segments) == 2

    case.broker.turn_until(lambda: case.log().recovery_point == 2, within_s=2.5)


def test_the_answer_tells_of_a_flush_that_failed(
    begin: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = begin("interval", {"flush.messages": "1"})

    def fail(file: DiskFile) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(DiskFile, "sync", fail)
    case.produce(acks=ACKS_LEADER)
    case.broker.turn_until(lambda: bool(case.client.writes))

    (sent,) = case.client.writes
    assert struct.unpack_from(">i", sent)[0] == len(sent) - 4
    message = ProduceResponse.decode(9, sent[9:])
    assert message.responses[0].partition_responses[0].error_code == 56


def test_what_a_start_recovered_is_synced_though_nothing_more_is_written(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data") as broker:
        run_here(broker.running.broker.topics.create(TOPIC, 1, {}))
        request = produce_request((TOPIC, 0, batch(b"v", b"w")), acks=ACKS_LEADER)
        broker.connect().feed(framed(request, 9, 1))
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    (tmp_path / "data" / ".pystate.json").unlink()  # else the log is known to be synced
    (tmp_path / "data" / "recovery-point-offset-checkpoint").unlink()

    with InProcessBroker(tmp_path / "data") as broker:
        log = broker.running.broker.directory.logs[TOPIC, 0]
        assert (log.recovery_point, log.written_offset) == (0, 2)
        broker.turn_until(lambda: log.recovery_point == 2, within_s=5)


def test_a_checkpoint_does_not_wait_for_its_time_when_much_was_written(
    begin: Callable[..., Case], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checkpoints, "WRITTEN_BYTES", 5_000)
    checkpoint = tmp_path / "data" / "recovery-point-offset-checkpoint"
    case = begin("ack", log_flush_offset_checkpoint_interval_ms="3600000")
    case.produce(bytes(4_000))
    before = checkpoint.read_bytes()
    case.wait(1.5)
    assert checkpoint.read_bytes() == before

    case.produce(bytes(4_000))

    case.broker.turn_until(lambda: checkpoint.read_bytes() != before, within_s=5)
    assert case.broker.running.broker.appends.bytes_written == 0
