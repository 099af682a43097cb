"""A partition moves to another process, or comes from one: what else this one has to do with it.

    leaves -> what is queued is written, and whoever is at work on its files comes to an end
    moved  -> a partition of coordinators takes its coordinator along

A coordinator that resigns forgets what it knows, and refuses those who wait for it, so that they
look for the next one, who reads it from the log (Kafka's onResignation, onElection).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from broker import clock
from broker.partitions.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from storage.layout import partition_of

if TYPE_CHECKING:
    from broker.assembly import Broker
    from broker.partitions.topic import Partition
    from storage.log import Log
    from storage.steps import Job

ANSWERED_WITHIN_S = 10.0
"""Time for answers to who waits for a log that moves; a sync takes milliseconds."""
WORK_PAUSE_S = 0.05


class BrokerHandover:
    """The parts of a broker that have to do with a move. Belongs to the loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def leaves(self, log: Log) -> Job:
        """Write what is queued for a log that is to be closed, and believe nothing that was heard
        of its transactions; the job waits for those who wait for it, and for who is at work on its
        files: a compaction, a removal, a load of what coordinators know or a snapshot of it."""
        broker, answered = self._broker, threading.Event()
        key = partition_of(log.name)
        assert key is not None
        broker.transactions.left([key])
        broker.appends.write()
        broker.group_commit.wait([log], lambda _: answered.set())

        def wait() -> None:
            answered.wait(ANSWERED_WITHIN_S)
            while self._is_at_work_on(log, key):
                clock.sleep(WORK_PAUSE_S)

        return wait

    def _is_at_work_on(self, log: Log, key: tuple[str, int]) -> bool:
        """May be asked on any thread."""
        broker = self._broker
        return (
            broker.cleaner.is_at_work_on(log)
            or broker.directory.starts.is_leaving(key)
            or broker.groups.loads.is_at_work_on(log)
            or broker.groups.snapshotting.is_at_work_on(log)
            or broker.transactions.is_at_work_on(log)
        )

    def moved(self, partition: Partition) -> None:
        """Have the coordinator of a partition resign, or a new one begin."""
        if partition.topic.name == OFFSETS_TOPIC:
            self._broker.groups.runtime.moved(partition)
        elif partition.topic.name == TRANSACTION_TOPIC:
            self._broker.transactions.moved(partition)
