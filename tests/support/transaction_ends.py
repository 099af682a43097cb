"""The ends of transactions, which Apache Kafka answers before readers of committed records see
them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from client.cluster import LATEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client.cluster import Cluster, TopicPartition

WAIT_S = 30.0
PAUSE_S = 0.02


def wait_for_ends(cluster: Cluster, places: Sequence[TopicPartition]) -> None:
    """Until no transaction is open in these partitions."""
    deadline = time.monotonic() + WAIT_S
    while cluster.offsets(places, LATEST, committed_only=True) != cluster.offsets(places, LATEST):
        assert time.monotonic() < deadline, f"transactions stay open in {places}"
        time.sleep(PAUSE_S)
