"""The progress of a job as the offsets of a consumer group at its source.

What is committed is durable at the destination, and nothing else: retention may wait for the group
(`retention.wait.groups` of a topic) and drop the records then. So it is committed right after each
micro-batch is done, the last one of a run too, and at the start of a run once more, since the
one before may have been killed in between, and a group may have been deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from client.cluster import Cluster, TopicPartition
from pipeline.errors import WrongUse
from pipeline.spark.micro_batches import reached

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pipeline.reading.options import SourceOptions
    from pipeline.reading.plan import Offsets
    from pipeline.spark.range_query import Committed
    from pipeline.state import State


def check_group(group: str | None, path: str | None = None) -> None:
    """Raises WrongUse."""
    if group is not None and path is not None:
        raise WrongUse(
            f"group '{group}' needs a broker, and {path} is a data directory: leave it out"
        )
    if group == "":
        raise WrongUse("the group's name is empty: leave out --group, or name one")


class GroupProgress:
    """Commits to a group, or to none. To be closed.

    Raises what `Cluster.commit_offsets` does: Refused for a group that has members, Unreachable.
    """

    def __init__(self, source: SourceOptions, group: str | None, state: State) -> None:
        self._source = source
        self._group = group
        self._state = state
        self._cluster: Cluster | None = None

    def __enter__(self) -> Self:
        """Commit what earlier runs have done."""
        self.catch_up()
        return self

    def catch_up(self) -> None:
        """Commit all that the state says is done, also of partitions without new records."""
        done = None if self._group is None else reached(self._state)
        if done:
            self._commit(done)

    def telling(self, committed: Committed) -> Committed:
        """The same, told after each micro-batch's offsets are committed."""

        def progressed(number: int, results: list[dict[str, Any]], seconds: float) -> None:
            if self._group is not None:
                ends: Offsets = {}
                for facts in results:
                    partition = TopicPartition(facts["topic"], facts["partition"])
                    ends[partition] = max(facts["end"], ends.get(partition, 0))
                self._commit(ends)
            committed(number, results, seconds)

        return progressed

    def _commit(self, offsets: Offsets) -> None:
        if self._cluster is None:
            found = self._source.source(patient=True)
            assert isinstance(found, Cluster)  # `Archive` and `Mirror` refuse a group otherwise
            self._cluster = found
        assert self._group is not None
        there = self._cluster.topics()  # a coordinator refuses partitions that were deleted
        kept = {
            one: offset
            for one, offset in offsets.items()
            if one.partition < there.get(one.topic, 0)
        }
        if kept:
            self._cluster.commit_offsets(self._group, kept)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._cluster is not None:
            self._cluster.close()
