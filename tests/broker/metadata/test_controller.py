"""The leader of the metadata log: what a restart keeps, and when snapshots are taken."""

from __future__ import annotations

import errno
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from protocol.logdata.metadata import RegisterBrokerRecord, read_batch
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest
from storage.disk import DiskFilesystem
from storage.metadata.loading import Loaded, load
from tests.support.broker_changes import set_all
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch
from tests.support.running_controller import RunningController
from tests.support.topic_changes import change
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.metadata.image import MetadataImage

FOLDER = "__cluster_metadata-0"
WITHIN_S = 10.0
OBSERVER = 77


def loaded(data: Path) -> Loaded:
    """What the files say, read beside or after the broker."""
    return load(DiskFilesystem(), str(data))


def names(data: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in (data / FOLDER).iterdir() if path.name.endswith(suffix))


def eventually(question: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def new_producer_id(caller: Caller) -> int:
    answer = caller.call(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4
    )
    assert answer.error_code == 0
    found: int = answer.producer_id
    return found


def shape(image: MetadataImage) -> dict[str, tuple[bytes, int]]:
    return {one.name: (one.topic_id, len(one.partitions)) for one in image.topics.values()}


# Restarts


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restart_keeps_topics_settings_ids_and_epochs(how: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(data)
    broker.start()
    with Caller(broker.host, broker.port) as caller:
        topic_id = caller.create_topic("kept", 3, retention_ms="3600000")
        caller.create_topic("gone")
        caller.delete_topic("gone")
        again = caller.create_topic("gone", 2)
        assert change(caller, "kept", segment_ms="123456") == 0
        set_all(caller, {"log.retention.ms": "777777"})
        caller.produce("kept", batch(b"a"), partition=2)
        producer_ids = [new_producer_id(caller) for _ in range(3)]
    getattr(broker, how)()
    before = loaded(data)

    with BrokerProcess(data) as broker, Caller(broker.host, broker.port) as caller:
        assert caller.topic_id("kept") == topic_id
        assert caller.topic_id("gone") == again
        assert caller.values("kept", partition=2) == [b"a"]
        assert new_producer_id(caller) > max(producer_ids)
        led = {one.leader_epoch for one in caller.describe("kept").partitions}
        assert led == {2 if how == "stop" else 1}, "a clean stop is an epoch without a leader"
    after = loaded(data)

    assert after.epoch == before.epoch + 1
    assert after.image.configs == before.image.configs
    assert after.image.configs[2, "kept"] == {"retention.ms": "3600000", "segment.ms": "123456"}
    assert after.image.configs[4, "1"] == {"log.retention.ms": "777777"}
    assert shape(after.image) == {"kept": (topic_id, 3), "gone": (again, 2)}
    states = set(after.image.topics["gone"].partitions.values())
    assert {(one.leader, one.leader_epoch) for one in states} == {(-1, min(led) + 1)}


def test_kill_9_at_any_time_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    acknowledged: dict[str, bytes] = {}
    removed: set[str] = set()
    for life in range(4):
        broker = BrokerProcess(data, settings={"controller.snapshot.minimum.records": "40"})
        broker.start()
        killer = threading.Timer(0.01 * life, broker.kill)
        with Caller(broker.host, broker.port) as caller, suppress(ConnectionClosed, OSError):
            for number in range(1000):
                if number == 25:  # on a slow machine, too, something is to be lost by then
                    killer.start()
                name = f"t{life}-{number}"
                acknowledged[name] = caller.create_topic(name, 2)
                if number % 4 == 3:
                    removed.add(name)
                    caller.delete_topic(name)
                    del acknowledged[name]
        killer.join()
        found = loaded(data)
        assert found.torn is None, "a killed process leaves all that it wrote"
        there = {one.name: one.topic_id for one in found.image.topics.values()}
        certain = {key: value for key, value in acknowledged.items() if key not in removed}
        assert certain.items() <= there.items(), life
        assert len(there.keys() - acknowledged.keys()) <= life + 1, "one under way in each life"
        acknowledged = there
        removed.clear()
    assert len(acknowledged) > 20
    assert names(data, ".checkpoint"), "there were snapshots as well"
    with BrokerProcess(data) as broker, Caller(broker.host, broker.port) as caller:
        answer = caller.call(MetadataRequest(topics=None), 12)
        assert {one.name: one.topic_id for one in answer.topics} == acknowledged


# Stops


def test_a_clean_stop_fences_this_node(tmp_path: Path) -> None:
    with RunningController(tmp_path / "data") as controller:
        image = controller.controller.image
        registered = image.brokers[1]
        assert not registered.fenced
        assert registered.broker_epoch < controller.end_offset
        assert controller.controller.store.broker_epoch == registered.broker_epoch

    found = loaded(tmp_path / "data")
    assert found.image.brokers[1].fenced
    assert found.image.brokers[1].broker_epoch == registered.broker_epoch
    marker = (tmp_path / "data" / ".kafka_cleanshutdown").read_text()
    assert f'"brokerEpoch":{registered.broker_epoch}' in marker


def test_the_epoch_of_a_registration_is_the_offset_of_its_record(tmp_path: Path) -> None:
    for _ in range(2):
        with RunningController(tmp_path / "data") as controller:
            (log,) = (tmp_path / "data" / FOLDER).glob("*.log")
            data = log.read_bytes()
            epoch = controller.controller.store.broker_epoch
    assert epoch == offset_of_last_registration(data)


def offset_of_last_registration(data: bytes) -> int:
    at, found = 0, -1
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        one = read_batch(data[at : at + size])
        for delta, record in enumerate(one.records):
            if isinstance(record, RegisterBrokerRecord):
                found = one.base_offset + delta
        at += size
    return found


def test_a_stop_leaves_one_snapshot_and_nothing_to_replay(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RunningController(data) as controller, controller.connect_as_client() as caller:
        caller.create_topic("small", 10)
    assert len(names(data, ".checkpoint")) == 1

    with RunningController(data) as controller, controller.connect_as_client() as caller:
        caller.create_topic("large", 1001)
    (name,) = names(data, ".checkpoint")
    found = loaded(data)
    assert found.snapshot is not None
    assert found.snapshot.file_name == name
    assert found.replayed_records == 0, "the next start reads the snapshot and nothing else"
    assert found.image.brokers[1].fenced
    assert shape(found.image).keys() == {"small", "large"}
    with RunningController(data) as controller:
        assert len(controller.controller.image.topics["large"].partitions) == 1001


# Snapshots while the broker runs


def one_topic_each(caller: Caller, first: int, count: int) -> None:
    for number in range(first, first + count):
        caller.create_topic(f"t{number}")


def test_a_snapshot_is_taken_by_the_count_of_records_while_produce_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {"controller.snapshot.minimum.records": "100"}
    with RunningController(data, **settings) as controller:
        with controller.connect_as_client() as caller:
            one_topic_each(caller, 0, 60)
            for number in range(50):
                assert caller.produce("t0", batch(b"%d" % number)).error_code == 0
            eventually(lambda: controller.controller.snapshots.ids)
            assert caller.end_offset("t0") == 50
            one_topic_each(caller, 60, 60)
            first = controller.controller.snapshots.ids[-1]
            one_topic_each(caller, 120, 60)
            eventually(lambda: controller.controller.snapshots.ids[-1] != first)
        # All that were not needed any more have gone, and so has the log before the last one.
        eventually(lambda: len(controller.controller.snapshots.ids) == 1)
        (latest,) = controller.controller.snapshots.ids
        # A snapshot is forgotten first; the log begins later when a thread has set its file aside.
        eventually(lambda: names(data, ".log") == [f"{latest.end_offset:020d}.log"])
        log = controller.metadata.log
        assert log.start_offset == latest.end_offset
        bases = [one.base_offset for one in log.segments]
        assert bases == [latest.end_offset]
        assert names(data, ".checkpoint") == [latest.file_name]
        assert names(data, ".part") == []
        running = loaded(data)
        assert shape(running.image).keys() == {f"t{number}" for number in range(180)}

    with RunningController(data) as controller:
        (at_the_stop,) = controller.controller.snapshots.ids
        assert controller.metadata.log.start_offset == at_the_stop.end_offset > latest.end_offset
        assert len(controller.controller.image.topics) == 180


def test_a_snapshot_is_taken_by_the_bytes_of_records(tmp_path: Path) -> None:
    settings = {"metadata.log.max.record.bytes.between.snapshots": "20000"}
    with RunningController(tmp_path / "data", **settings) as controller:
        with controller.connect_as_client() as caller:
            caller.create_topic("few", 10)
            assert not controller.controller.snapshots.ids
            caller.create_topic("many", 300)
        eventually(lambda: controller.controller.snapshots.ids)


def test_a_snapshot_is_taken_when_a_change_has_waited_long_enough(tmp_path: Path) -> None:
    settings = {"metadata.log.max.snapshot.interval.ms": "3600000"}
    with RunningController(tmp_path / "data", **settings) as controller:
        now_ms = controller.broker.now_ms()
        controller.run(controller.controller.look)
        assert controller.controller._writing is None
        controller.set_clock(now_ms + 3_700_000)
        controller.run(controller.controller.look)
        eventually(lambda: controller.controller.snapshots.ids)
        taken = list(controller.controller.snapshots.ids)
        eventually(lambda: controller.controller._writing is None)
        controller.set_clock(now_ms + 9_700_000)
        controller.run(controller.controller.look)
        assert controller.controller._writing is None, "nothing has changed since"
        assert controller.controller.snapshots.ids == taken


def test_what_followers_still_need_stays_until_they_lag_too_much(tmp_path: Path) -> None:
    settings = {"max.replication.lag.ms": "900000"}
    with RunningController(tmp_path / "data", **settings) as controller:
        controller.append(5)
        needed = controller.end_offset - 3
        first = controller.take_snapshot()
        controller.append(5)
        second = controller.take_snapshot()
        now_ms = controller.broker.now_ms()

        def follower_at(offset: int, now_ms: int) -> None:
            controller.run(
                lambda: controller.controller.observers.fetched(
                    OBSERVER, bytes(16), offset=offset, leader_end_offset=20, now_ms=now_ms
                )
            )
            controller.run(controller.controller.look)

        def start() -> int:
            found: int = controller.metadata.log.start_offset
            return found

        follower_at(needed, now_ms)
        assert start() == 0, "it is behind the first snapshot"
        assert controller.controller.snapshots.ids == [first, second]
        follower_at(first.end_offset + 1, now_ms)
        assert start() == first.end_offset
        assert controller.controller.snapshots.ids == [first, second]
        follower_at(second.end_offset, now_ms)
        eventually(lambda: start() == second.end_offset)
        assert controller.controller.snapshots.ids == [second]

        controller.append(5)
        third = controller.take_snapshot()
        follower_at(second.end_offset, now_ms)
        assert start() == second.end_offset
        controller.set_clock(now_ms + 1_000_000)
        follower_at(second.end_offset, now_ms + 1_000_000)
        eventually(lambda: start() == third.end_offset)  # it will be given the snapshot


def test_a_snapshot_that_can_not_be_written_does_no_harm_and_is_taken_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EFBIG, "File too large")

    settings = {"controller.snapshot.minimum.records": "20"}
    with RunningController(tmp_path / "data", **settings) as controller:
        with controller.connect_as_client() as caller:
            with monkeypatch.context() as full:
                full.setattr("storage.metadata.snapshots.SnapshotWriter.finish", refuse)
                one_topic_each(caller, 0, 30)
                eventually(lambda: controller.controller._writing is None)
                assert controller.controller.snapshots.ids == []
            assert names(tmp_path / "data", ".checkpoint") == []
            one_topic_each(caller, 30, 30)
        eventually(lambda: controller.controller.snapshots.ids)
    assert len(loaded(tmp_path / "data").image.topics) == 60


def test_a_log_that_can_not_be_rolled_for_a_snapshot_leaves_the_change_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EFBIG, "File too large")

    settings = {"controller.snapshot.minimum.records": "20"}
    with RunningController(tmp_path / "data", **settings) as controller:
        with controller.connect_as_client() as caller, monkeypatch.context() as full:
            full.setattr("storage.log.store_snapshot", refuse)
            one_topic_each(caller, 0, 20)
        assert controller.controller.snapshots.ids == []
        assert len(controller.controller.image.topics) == 20


# One request of many topics


def test_many_topics_of_one_request_are_one_append(tmp_path: Path) -> None:
    with RunningController(tmp_path / "data") as controller:
        before = controller.end_offset
        with controller.connect_as_client() as caller:
            topics = [
                CreateTopicsRequest.Topic(
                    name=f"t{number}", num_partitions=2, replication_factor=1, assignments=[],
                    configs=[],
                )
                for number in range(50)
            ]  # fmt: skip
            answer = caller.call(CreateTopicsRequest(topics=topics))
            assert {one.error_code for one in answer.topics} == {0}
        assert controller.end_offset - before == 50 * 3
    found = loaded(tmp_path / "data")
    assert len(found.image.topics) == 50
