"""Histories of transactions on a disk that refuses now and then, against what was acknowledged."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING, Any

import pytest

from storage.disk import DiskFile
from tests.support.fake_connection import InProcessBroker
from tests.support.transactions import (
    KnownTransactions,
    TransactionalClient,
    create_topic,
    handed_out,
    partition_of,
)

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "orders"
PARTITIONS = 3
STEPS = 100

Place = tuple[str, int]


class Side:
    """One producer, what was acknowledged of its open transaction, and ends that are left."""

    def __init__(self, broker: InProcessBroker, number: int) -> None:
        self.client = TransactionalClient(broker, f"tx-{number}", 70 + number)
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.left: list[Place] = []
        self.commits = False


class History:
    """Transactions of three producers under the rules of transaction.version 2."""

    def __init__(self, broker: InProcessBroker, seed: int) -> None:
        self.broker = broker
        self.rng = random.Random(seed)
        self.known = KnownTransactions.of(broker)
        self.sides = [Side(broker, number) for number in range(3)]
        self.committed: list[tuple[int, int, bytes]] = []
        self.refuses = False
        self.sent = self.refused = 0

    def step(self) -> None:
        side = self.rng.choice(self.sides)
        self.refuses = self.rng.random() < 0.15
        if side.left:
            self.finish(side)
        elif self.rng.random() < 0.7:
            self.send(side)
        elif side.client.transactional_id in self.known.open:
            self.end(side, commit=self.rng.random() < 0.6)
        self.refuses = False
        self.broker.running.broker.disk.full = False

    def send(self, side: Side) -> None:
        """One to three batches in one request, which wait for the end of the turn."""
        client = side.client
        if client.transactional_id not in self.known.open:
            self.known.begin(client.transactional_id, client.producer_id, epoch=client.epoch)
        before = dict(client.sequences)
        indexes = self.rng.sample(range(PARTITIONS), self.rng.randint(1, PARTITIONS))
        values = [b"%d" % (self.sent + number) for number in range(len(indexes))]
        self.sent += len(indexes)
        entries = client.send_sets(
            *(
                (TOPIC, index, client.set_of(TOPIC, value, partition=index))
                for index, value in zip(indexes, values, strict=True)
            ),
            version=12,
        )
        for index, value, entry in zip(indexes, values, entries, strict=True):
            if entry.error_code:
                self.refused += 1
                client.sequences[TOPIC, index] = before.get((TOPIC, index), 0)
            else:
                side.acknowledged.append((index, entry.base_offset, value))

    def end(self, side: Side, *, commit: bool) -> None:
        side.commits = commit
        side.left = self.known.end(side.client.transactional_id, commit=commit, raised=1)
        self.settle(side)

    def finish(self, side: Side) -> None:
        client = side.client
        self.known.begin(
            client.transactional_id, client.producer_id, *side.left, epoch=client.epoch
        )
        side.left = self.known.end(client.transactional_id, commit=side.commits, raised=1)
        self.settle(side)

    def settle(self, side: Side) -> None:
        if side.left:
            return
        if side.commits:
            self.committed += side.acknowledged
        side.acknowledged = []
        side.client.next_epoch()

    def end_all(self) -> None:
        for side in self.sides:
            if side.left:
                self.finish(side)
            if side.client.transactional_id in self.known.open:
                self.end(side, commit=False)
            assert side.left == []

    def expect(self) -> None:
        """What readers of committed records hand out is what was committed, in its order."""
        reader = self.sides[0].client
        for index in range(PARTITIONS):
            found = reader.fetch(TOPIC, partition=index)
            aborted = [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
            wanted = sorted(one for one in self.committed if one[0] == index)
            stable = partition_of(self.broker, TOPIC, index).log.last_stable_offset
            assert handed_out(bytes(found.records), aborted) == [
                value for _, offset, value in wanted if offset < stable
            ]


@pytest.mark.parametrize("seed", range(4))
def test_readers_see_what_was_committed_however_often_the_disk_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    with InProcessBroker(tmp_path / "data") as broker:
        create_topic(broker, TOPIC, PARTITIONS)
        history = History(broker, seed)
        write_at = DiskFile.write_at

        def write(file: DiskFile, buffers: Any, position: int) -> None:
            if history.refuses and f"/{TOPIC}-" in file.path and history.rng.random() < 0.5:
                raise OSError(errno.ENOSPC, "as the test wants it")
            write_at(file, buffers, position)

        monkeypatch.setattr(DiskFile, "write_at", write)
        for number in range(STEPS):
            history.step()
            if number % 10 == 0 and not any(side.left for side in history.sides):
                history.expect()
        history.end_all()
        history.expect()

        assert history.refused > 0
        assert len(history.committed) > 10
        for index in range(PARTITIONS):
            log = partition_of(broker, TOPIC, index).log
            assert log.last_stable_offset == log.written_offset == log.next_offset
