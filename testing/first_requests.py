"""The requests that tests make of most brokers, made once of one that is thrown away."""

from __future__ import annotations

from client.cluster import EARLIEST, Cluster, TopicPartition
from protocol.records.builder import build_batch

PLACE = TopicPartition("first", 0)


def at_first(bootstrap: str) -> None:
    """Make a topic, write to it, commit an offset."""
    with Cluster(bootstrap) as cluster:
        cluster.create_topic(PLACE.topic, 1)
        cluster.produce(PLACE, [build_batch([(0, None, b"", ())])])
        cluster.commit_offsets(PLACE.topic, {PLACE: 1})


def after_restart(bootstrap: str) -> None:
    """Read what `at_first` has written."""
    with Cluster(bootstrap) as cluster:
        cluster.offsets([PLACE], EARLIEST)
        cluster.fetch(PLACE, 0)
        cluster.committed(PLACE.topic)
