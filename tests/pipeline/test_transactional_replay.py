"""Replays and mirrors in transactions, with Spark's part played by a loop: readers of committed
records have each record once, whoever was killed when, and nothing of the destination is looked at.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Any

import pytest

from client.cluster import Cluster, TopicPartition
from client.transactions import TransactionalProducer
from pipeline.delivering import delivery
from pipeline.delivering.replay_task import ReplayTask
from pipeline.delivering.transactional import Transactions
from pipeline.errors import ForeignState, OffsetsGone, Refused, WrongUse
from pipeline.jobs.mirror import Mirror
from pipeline.jobs.replay import Replay
from protocol.records.batch import Batch
from protocol.records.layout import HEADER_SIZE
from tests.pipeline.mirroring import archive, digest, micro_batch, stored
from tests.pipeline.test_replay import Killed, fill, run, without_spark
from tests.pipeline.transactional_history import write_history, written_values

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess


@pytest.fixture(autouse=True)
def nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: object) -> None:
        raise AssertionError("the destination was looked at")

    monkeypatch.setattr(delivery, "Stored", look)


def values(broker: BrokerProcess, topic: str, *, committed: bool = True) -> list[list[Any]]:
    """Of each partition. That readers of either kind see the same, test_committed_reads shows."""
    return [
        written_values(broker.bootstrap, TopicPartition(topic, partition), committed=committed)
        for partition in range(2)
    ]


class Deaths:
    """A driver that is killed at the n-th commit: before it, or after it and before its answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left: int | None = None
        self._after = False
        commit, close = TransactionalProducer.commit, TransactionalProducer.close

        def dying(producer: TransactionalProducer) -> None:
            if self._left is None:
                return commit(producer)
            self._left -= 1
            if self._left >= 0:
                return commit(producer)
            while producer._in_flight:
                producer._take_answer()
            if self._after:
                commit(producer)
            raise Killed

        def left_open(producer: TransactionalProducer) -> None:
            if self._left is None:
                close(producer)

        monkeypatch.setattr(TransactionalProducer, "commit", dying)
        monkeypatch.setattr(TransactionalProducer, "close", left_open)

    def at(self, commits: int, *, after: bool) -> None:
        self._left, self._after = commits, after

    def none(self) -> None:
        self._left = None


@pytest.mark.parametrize("shape", ["batches", "records"])
def test_a_replay_that_is_killed_around_each_commit_writes_each_record_once(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    topic = f"commits-{shape}"
    fill(broker.bootstrap, topic)
    # Each set is a transaction of its own, or what can be one.
    monkeypatch.setattr("pipeline.delivering.transactional.TRANSACTION_BYTES", 1)
    monkeypatch.setattr("pipeline.delivering.replay_task.ROWS_AT_ONCE", 9)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape=shape)
    job = Replay(folder, broker.bootstrap, rename="{topic}-again", transactional_id="nightly")
    deaths = Deaths(monkeypatch)
    without_spark(monkeypatch)
    for commits in (0, 1, 2):
        for after in (False, True):
            deaths.at(commits, after=after)
            with pytest.raises(Killed):
                run(job)
    deaths.none()
    outcome = run(job)
    assert values(broker, f"{topic}-again") == values(broker, topic)
    assert values(broker, f"{topic}-again", committed=False) != values(broker, topic)
    assert outcome.details["offsets committed by an earlier attempt"] >= 9
    assert outcome.details["transactions committed"] > 1

    # It is done. Asked for again it is written again, in other transactions.
    assert run(job).records == 0
    run(dataclasses.replace(job, again=True))
    assert values(broker, f"{topic}-again") == [part * 2 for part in values(broker, topic)]


def test_records_of_others_that_look_the_same_are_not_taken_for_ours(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.bootstrap, "alike")
    fill(broker.bootstrap, "alike-again", batches=8)
    folder = archive(broker.bootstrap, "alike", tmp_path / "lake", shape="batches")
    job = Replay(folder, broker.bootstrap, rename="{topic}-again", transactional_id="alike")
    without_spark(monkeypatch)
    deaths = Deaths(monkeypatch)
    deaths.at(0, after=False)
    with pytest.raises(Killed):
        run(job)
    fill_again = stored(broker.bootstrap, "alike")[:4]
    with Cluster(broker.bootstrap) as cluster:
        for entry in fill_again:
            cluster.produce(TopicPartition("alike-again", 0), [bytes(8) + entry[8:]])
    deaths.none()
    run(job)
    mine = values(broker, "alike")
    others = values(broker, "alike")[0][:12]
    found = values(broker, "alike-again")
    assert found[0] == mine[0][:12] + others + mine[0]
    assert found[1] == mine[1][:12] + mine[1]


def test_archived_batches_are_not_compressed_anew(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.bootstrap, "payloads")
    folder = archive(broker.bootstrap, "payloads", tmp_path / "lake", shape="batches")
    without_spark(monkeypatch)
    run(Replay(folder, broker.bootstrap, rename="{topic}-again", transactional_id="as-is"))
    for partition in range(2):
        source = stored(broker.bootstrap, "payloads", partition)
        copy = stored(broker.bootstrap, "payloads-again", partition)
        batches = [Batch(memoryview(entry)) for entry in copy]
        assert [one.is_transactional for one in batches] == [True] * len(batches)
        assert [one.is_control for one in batches] == [False] * (len(batches) - 1) + [True]
        assert [entry[HEADER_SIZE:] for entry in copy[:-1]] == [
            entry[HEADER_SIZE:] for entry in source
        ]
        assert digest(copy) == digest(source)


def test_a_task_that_was_given_up_alive_is_fenced_by_its_second_attempt(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.bootstrap, "zombies")
    folder = archive(broker.bootstrap, "zombies", tmp_path / "lake", shape="batches")
    job = Replay(folder, broker.bootstrap, rename="{topic}-again", transactional_id="z")
    halfway, go_on = threading.Event(), threading.Event()
    send = TransactionalProducer.send

    def slow(producer: TransactionalProducer, place: TopicPartition, batch: Any) -> None:
        send(producer, place, batch)
        if threading.current_thread() is zombie and not halfway.is_set():
            halfway.set()
            assert go_on.wait(30)

    monkeypatch.setattr(TransactionalProducer, "send", slow)
    ran = without_spark(monkeypatch, killed_after=0)
    failures: list[BaseException] = []

    def work(task: ReplayTask) -> None:
        try:
            task.work()
        except BaseException as error:
            failures.append(error)

    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("zombies-again", 2)
    monkeypatch.setattr(ReplayTask, "work", lambda task: {})
    with pytest.raises(Killed):
        run(job)
    monkeypatch.undo()
    monkeypatch.setattr(TransactionalProducer, "send", slow)
    task = next(task for task in ran if task.place.partition == 0)
    zombie = threading.Thread(target=work, args=(task,))
    zombie.start()
    assert halfway.wait(30)
    task.work()
    go_on.set()
    zombie.join(30)
    (failure,) = failures
    assert isinstance(failure, Refused)
    assert "'z-zombies-again-0' has been taken over: by a later attempt" in str(failure)
    # A third one has nothing to do.
    assert task.work()["counts"]["committed_before"] == 36
    assert values(broker, "zombies-again")[0] == values(broker, "zombies")[0]


def test_a_state_belongs_to_its_transactional_id(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.bootstrap, "prefixes", batches=2)
    folder = archive(broker.bootstrap, "prefixes", tmp_path / "lake", shape="records")
    without_spark(monkeypatch)
    job = Replay(folder, broker.bootstrap, rename="{topic}-again", transactional_id="one")
    run(job)
    for other in ("two", None):
        with pytest.raises(ForeignState, match="is of transactional id 'one', not of"):
            dataclasses.replace(job, transactional_id=other).check()
    for wrong in ("", " x", "y" * 201):
        with pytest.raises(WrongUse, match=r"transactional-id is .*: want 1 to 200 characters"):
            dataclasses.replace(job, transactional_id=wrong).check()


def test_a_topic_of_an_older_format_is_refused(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.bootstrap, "older", batches=2)
    folder = archive(broker.bootstrap, "older", tmp_path / "lake", shape="batches")
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("older-again", 2, {"message.format.version": "0.10.0"})
    without_spark(monkeypatch)
    with pytest.raises(Refused, match="stores record format 1, and transactions need format 2"):
        run(Replay(folder, broker.bootstrap, rename="{topic}-again", transactional_id="o"))


@pytest.fixture(scope="module")
def history(broker: BrokerProcess) -> Iterator[str]:
    """A topic with committed, aborted and open transactions."""
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("of-transactions", 2)
    opened = write_history(broker.bootstrap, "of-transactions")
    yield "of-transactions"
    del opened


@pytest.mark.parametrize("transactional_id", [None, "mirrors"])
def test_a_mirror_has_what_was_committed_of_other_transactions(
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    history: str,
    transactional_id: str | None,
) -> None:
    mirror = Mirror(
        broker.bootstrap,
        broker.bootstrap,
        str(tmp_path / "state"),
        (history,),
        rename=f"{{topic}}-{transactional_id}",
        transactional_id=transactional_id,
    )
    monkeypatch.undo()
    micro_batch(mirror)
    assert values(broker, f"{history}-{transactional_id}") == values(broker, history)


@pytest.mark.parametrize("shape", ["batches", "records"])
def test_an_archive_gives_back_what_was_committed_of_other_transactions(
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    history: str,
    shape: str,
) -> None:
    without_spark(monkeypatch)
    folder = archive(
        broker.bootstrap, history, tmp_path / "lake", shape=shape, step=7, committed_only=True
    )
    copy = f"{history}-{shape}"
    with Cluster(broker.bootstrap) as cluster:
        for name in (copy, f"{copy}-2"):
            cluster.create_topic(name, 2)
    run(Replay(folder, broker.bootstrap, rename=copy, topics=(history,), transactional_id="back"))
    assert values(broker, copy) == values(broker, history)

    if shape == "batches":
        # With the beginning of the open one: whether it will count is not known.
        folder = archive(broker.bootstrap, history, tmp_path / "open", shape=shape, step=7)
        job = Replay(
            folder, broker.bootstrap, (history,), rename=f"{copy}-2", transactional_id="back"
        )
        with pytest.raises(OffsetsGone, match=r"before a transaction does .* --to-offset 54,"):
            run(job)
        run(dataclasses.replace(job, to_offset=54))
        assert values(broker, f"{copy}-2") == values(broker, history)


def test_a_mirror_that_is_killed_around_each_commit_copies_each_record_once(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.bootstrap, "copied")
    monkeypatch.setattr("pipeline.delivering.transactional.TRANSACTION_BYTES", 1)
    mirror = Mirror(
        broker.bootstrap,
        broker.bootstrap,
        str(tmp_path / "state"),
        ("copied",),
        rename="{topic}-again",
        transactional_id="copies",
    )
    deaths = Deaths(monkeypatch)
    for commits in (0, 3):
        for after in (False, True):
            deaths.at(commits, after=after)
            with pytest.raises(Killed):
                micro_batch(mirror)
    deaths.none()
    micro_batch(mirror, commit=False)
    (facts, other) = micro_batch(mirror)
    assert facts["counts"] == other["counts"] == {"committed_before": 36}
    assert values(broker, "copied-again") == values(broker, "copied")
    # What comes later follows.
    more = stored(broker.bootstrap, "copied")[0]
    with Cluster(broker.bootstrap) as cluster:
        cluster.produce(TopicPartition("copied", 1), [more])
    micro_batch(mirror)
    assert values(broker, "copied-again") == values(broker, "copied")
    assert Transactions("copies", "x").id_for(TopicPartition("a", 1)) == "copies-a-1"
