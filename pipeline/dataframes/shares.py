"""Each task's share of a write, once, in one transaction.

A share is known by the number of its task and by an epoch: of a stream that is the number of the
micro-batch, of one write the option `transactionalEpoch`. The transaction that writes it also notes
its epoch, as the offset of a consumer group that has the transactional id as its name, PREFIX-TASK.
A task that is run again, by Spark or after a driver was killed, takes the transactional id over:
the attempt before it can write no more, and what it left open is aborted. Then it finds its epoch
noted, and writes nothing, or does not, and writes it all.

Tasks only write. The driver ends their transactions when Spark says that all have succeeded: a task
cannot know that it was given all its rows, as where the one that makes them fails, Spark closes the
stream of rows, and that looks like its end.

A driver that is killed while it ends them leaves some committed, which are not written again. So
the same rows have to come to the task of the same number again. Which they do where the source and
the number of tasks are the same; the number of rows is noted too, and compared.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from client.cluster import TopicPartition
from client.committing import Committed
from pipeline.errors import Failure, ForeignState, WrongUse

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from client.cluster import Cluster
    from client.producing import EntryBytes
    from client.transactions import Prepared, TransactionalProducer

BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
"""The properties by which Spark tells a task which micro-batch of which query it is of."""
NAMED = "write"
"""The run of all writes that have an epoch given."""


class Run(NamedTuple):
    """What the tasks of a write have in common. Another run with the same prefix does not count
    what this one has written."""

    name: str
    epoch: int


def new_run(epoch: int | None) -> Run:
    """Of one write: with an epoch the same one each time, else one that was never there."""
    return Run(uuid.uuid4().hex, 0) if epoch is None else Run(NAMED, epoch)


class Share(NamedTuple):
    """The rows of one task in one run."""

    transactional_id: str
    run: Run

    @classmethod
    def of_task(cls, prefix: str, run: Run | None) -> Share:
        """That of Spark's present task; without a run it is a stream's."""
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None:
            raise WrongUse("transactionalId: rows can only be written by a task of Spark")
        if run is None:
            query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
            if query is None or batch is None:
                raise WrongUse("transactionalId: this Spark does not tell tasks their micro-batch")
            run = Run(query, int(batch))
        return cls(f"{prefix}-{task.partitionId()}", run)


class Written(WriterCommitMessage):
    """The rows of one task, for the driver.

    Of transactions: `prepared` is the one that is to be ended, None if there is none; `committed`
    the rows that the share had when it was committed before, None if it was not.
    """

    def __init__(
        self,
        rows: int,
        share: Share | None = None,
        prepared: Prepared | None = None,
        committed: int | None = None,
    ) -> None:
        self.rows = rows
        self.share = share
        self.prepared = prepared
        self.committed = committed

    def check(self) -> None:
        """Raises ForeignState if the share had another number of rows when it was committed."""
        if self.share is not None and self.committed not in (None, self.rows):
            raise ForeignState(
                f"'{self.share.transactional_id}' wrote {self.committed:,} rows in epoch "
                f"{self.share.run.epoch}, and now has {self.rows:,} for it: the rows are shared "
                "out among tasks in another way. Go on with as many partitions as before"
            )


class ShareSending:
    """Sends a share's entries; `committed` are the rows that it had when it was committed, by an
    attempt before this one, or None."""

    def __init__(self, cluster: Cluster, producer: TransactionalProducer, share: Share) -> None:
        """Takes the transactional id over. Raises Refused, Unreachable, ForeignState."""
        self._producer = producer
        self._share = share
        self._place: TopicPartition | None = None
        producer.initialize()
        self.committed = self._committed(cluster)

    def send(self, partition: TopicPartition, entries: Sequence[EntryBytes], magic: int) -> None:
        """Send batches of format 2. Raises Refused, Unreachable, NoSuchTopic."""
        for entry in entries:
            self._producer.send(partition, entry)
            self._place = partition

    def finish(self, rows: int) -> Prepared | None:
        """Wait until all that was sent is stored, and note with it that it was."""
        if self._place is None:
            return None
        run = self._share.run
        noted = Committed(run.epoch + 1, json.dumps({"run": run.name, "rows": rows}))
        self._producer.send_offsets(self._share.transactional_id, {self._place: noted})
        return self._producer.prepare()

    def _committed(self, cluster: Cluster) -> int | None:
        name, epoch = self._share.run
        latest, rows = -1, 0
        for noted in cluster.committed(self._share.transactional_id).values():
            found = _parsed(noted.metadata)
            if found.get("run") == name and noted.offset - 1 > latest:
                latest, rows = noted.offset - 1, found["rows"]
        if latest > epoch:
            raise ForeignState(
                f"'{self._share.transactional_id}' has written epoch {latest} already, and is to "
                f"write {epoch}: its checkpoint, or transactionalEpoch, is an older one. Use "
                "another transactionalId, or go on behind it"
            )
        return rows if latest == epoch else None


def _parsed(metadata: str) -> dict[str, Any]:
    try:
        found = json.loads(metadata)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("rows"), int) else {}


def commit(cluster: Cluster, written: Collection[Written], timeout_ms: int) -> None:
    """Commit what tasks have written, which all have succeeded.

    Raises ForeignState, before anything is committed, Refused, Unreachable.
    """
    for one in written:
        one.check()
    for one in written:
        if one.prepared is not None:
            producer = cluster.transactional_producer(
                one.prepared.transactional_id, timeout_ms=timeout_ms
            )
            producer.resume(one.prepared)
            producer.commit()


def abort(cluster: Cluster, prefix: str, tasks: int, timeout_ms: int) -> None:
    """End what so many tasks may have left open, as far as the broker lets us; it does so itself
    when their time is up."""
    with contextlib.suppress(Failure):
        for number in range(tasks):
            cluster.transactional_producer(f"{prefix}-{number}", timeout_ms=timeout_ms).initialize()
