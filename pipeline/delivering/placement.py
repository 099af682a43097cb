"""The partition that each row is written to.

A row's topic is the writer's own, or its column `topic`; its partition is its column `partition`,
or what `pipeline.delivering.partitioner` chooses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from client.cluster import TopicPartition
from pipeline.delivering.partitioner import Sticky, by_key
from pipeline.errors import NoSuchTopic, WrongUse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from client.cluster import Cluster


class Placement:
    """Splits rows by partition, for one task.

    `turn` is where rows without a key and a partition begin, `batch_bytes` how many of them stay
    together.
    """

    def __init__(self, cluster: Cluster, topic: str | None, *, turn: int, batch_bytes: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._sticky: dict[str, Sticky] = {}
        self._turn = turn
        self._batch_bytes = batch_bytes
        self._counts: dict[str, int] = {}

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """The rows of each partition, in the order they came in.

        Raises NoSuchTopic, of a partition too, and WrongUse for a row without a topic, or a batch
        without a partition.
        """
        for topic, of_topic in self._by_topic(rows):
            partitions = self._partitions(topic, of_topic)
            for partition, of_partition in _grouped(of_topic, partitions):
                yield TopicPartition(topic, partition), of_partition

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            yield self._topic, rows
            return
        topics = rows.column("topic")
        if topics.null_count:
            raise WrongUse("a row to be written has a null topic: fill it, or set option 'topic'")
        coded = pc.dictionary_encode(topics)
        for code, of_topic in _grouped(rows, coded.indices.to_numpy()):
            yield coded.dictionary[code].as_py(), of_topic

    def _partitions(self, topic: str, rows: pa.RecordBatch) -> NDArray[np.int32]:
        count = self._count(topic)
        if "partition" not in rows.schema.names:
            return self._chosen(topic, rows, count)
        given = rows.column("partition")
        partitions: NDArray[np.int32] = pc.fill_null(given, 0).to_numpy().astype(np.int32)
        wrong = partitions[(partitions < 0) | (partitions >= count)]
        if len(wrong):
            raise NoSuchTopic(
                f"a row is for partition {wrong[0]} of topic {topic!r}, which has {count}: "
                "leave column 'partition' out to have it chosen by key"
            )
        if given.null_count:
            missing = given.is_null().to_numpy(zero_copy_only=False)
            partitions[missing] = self._chosen(topic, rows.filter(given.is_null()), count)
        return partitions

    def _chosen(self, topic: str, rows: pa.RecordBatch, count: int) -> NDArray[np.int32]:
        if "batch" in rows.schema.names:
            raise WrongUse(
                "a batch to be written has a null partition, and no key to choose one by"
            )
        chosen = np.zeros(rows.num_rows, np.int32)
        without = np.ones(rows.num_rows, np.bool_)
        if "key" in rows.schema.names:
            keys = rows.column("key")
            without = keys.is_null().to_numpy(zero_copy_only=False)
            if keys.null_count < len(keys):
                chosen = by_key(keys, count)
        if without.any():
            sticky = self._sticky.setdefault(topic, Sticky(self._turn, self._batch_bytes))
            row_bytes = rows.nbytes / rows.num_rows
            chosen[without] = sticky.spread(int(without.sum()), row_bytes, count)
        return chosen

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = len(self._cluster.partitions([topic]))
        return self._counts[topic]


def _grouped(
    rows: pa.RecordBatch, groups: NDArray[np.int32]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each group number, their order kept."""
    if not len(groups):
        return
    if (groups == groups[0]).all():
        yield int(groups[0]), rows
        return
    order = np.argsort(groups, kind="stable")
    in_groups = rows.take(pa.array(order))
    edges = np.flatnonzero(np.diff(groups[order])) + 1
    for begin, end in zip((0, *edges), (*edges, len(order)), strict=True):
        yield int(groups[order[begin]]), in_groups.slice(begin, end - begin)
