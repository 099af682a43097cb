"""The topics that are written to: made like those at the source, and each partition as a delivery
needs it."""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from client.cluster import LATEST, Cluster, OffsetOutOfRange, TopicPartition
from client.errors import ConnectionLost
from pipeline.errors import Refused, Unreachable, WrongUse
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from client.producing import Producing
    from pipeline.reading.source import Source

READ_BACK_BYTES = 8 << 20

REPLICATED_S = 60.0
"""How long to wait until what was appended is replicated, and so can be read."""
PAUSE_S = 0.1

COPIED = frozenset(
    {
        "cleanup.policy",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    }
)
"""Settings of a topic that its copy gets, too. Those that would change or refuse what is stored
(compression.type, message.*) are left at their defaults, as are those about replicas."""

LARGEST = 1_000_000
"""What every broker takes that is not told otherwise."""

_FOR_EVER = 1 << 62
_SETTING = re.compile(r"[a-z]+(?:\.[a-z]+)+")


class Terms(NamedTuple):
    """The requirements of a destination for record sets."""

    magic: int
    """The format that it stores."""
    wary: bool
    """It may refuse one set and take the next (`delivery.Pacing`)."""
    largest: int
    """The bytes of an entry that it takes: no more are put together."""


def terms(cluster: Cluster, partition: TopicPartition) -> Terms:
    """Raises NoSuchTopic, Unreachable."""
    _, newest = cluster.formats(partition)
    configs = cluster.topic_configs(partition.topic)
    version = configs.get("message.format.version", "")
    stored = 0 if version.startswith(("0.8", "0.9")) else 1 if version.startswith("0.10") else 2
    largest = int(configs.get("max.message.bytes", LARGEST))
    return Terms(min(newest, stored), _is_wary(configs), largest)


def _is_wary(configs: Mapping[str, str]) -> bool:
    if not configs:
        return True
    return (
        int(configs.get("min.insync.replicas", "1")) > 1
        or "compact" in configs.get("cleanup.policy", "")
        or any(
            int(configs.get(f"message.timestamp.{name}.max.ms", str(_FOR_EVER))) < _FOR_EVER
            for name in ("before", "difference")
        )
    )


def make_like(source: Source, cluster: Cluster, copies: Mapping[str, str]) -> list[str]:
    """See that `cluster` has the topics that are the values of `copies`, each with as many
    partitions as its key has at `source`; those that had to be made. Raises NoSuchTopic for one
    that the source has not got, and Refused if a copy has fewer partitions."""
    wanted = Counter(place.topic for place in source.partitions(copies))
    there = set(cluster.existing(copies.values()))
    made = []
    for topic, name in copies.items():
        if name in there:
            continue
        own = source.topic_configs(topic, own=True)
        configs = {key: value for key, value in own.items() if key in COPIED}
        if make_topic(cluster, name, wanted[topic], configs):
            made.append(name)
        else:
            there.add(name)
    found = Counter(place.topic for place in cluster.partitions(there))
    for topic, name in copies.items():
        if name in there and found[name] < wanted[topic]:
            raise Refused(
                f"topic '{name}' on {cluster.servers} has {found[name]} partitions, and '{topic}' "
                f"has {wanted[topic]}: give it as many, or name another topic (--rename)"
            )
    return made


def make_topic(
    cluster: Cluster, name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> bool:
    """False if somebody else has just made it. Settings that the broker does not know are left
    out: one by one where it names them, else all. Raises Refused."""
    configs = configs or {}
    while True:
        try:
            cluster.create_topic(name, partitions, configs)
        except Refused as error:
            if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return False
            if error.code != ErrorCode.INVALID_CONFIG or not configs:
                raise
            named = set(_SETTING.findall(str(error)))
            known = {key: value for key, value in configs.items() if key not in named}
            configs = known if len(known) < len(configs) else {}
        else:
            return True


def renamed(rename: str | None, topic: str) -> str:
    """The name of a topic's copy: `rename` with the topic's name in place of `{topic}`."""
    return topic if rename is None else rename.replace("{topic}", topic)


def check_rename(rename: str | None, topics: int | None) -> None:
    """`topics` is how many are named; None for a pattern. Raises WrongUse."""
    if rename is not None and "{topic}" not in rename and topics != 1:
        raise WrongUse(
            f"all topics would be written to '{rename}': write {{topic}} where the name of each "
            "is to be, as in 'old.{topic}'"
        )


class ClusterPartition:
    """A `delivery.Destination`: one partition of a cluster. For one thread."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = f"{partition} on {cluster.servers}"
        self._cluster = cluster
        self._partition = partition
        self._begun: deque[Producing] = deque()
        self._clock = clock
        self._sleep = sleep

    def end(self) -> int:
        """As Destination has it: not before all that the leader has is replicated."""
        appended = self._cluster.appended(self._partition)
        began = self._clock()
        while True:
            end = self._cluster.offsets([self._partition], LATEST)[self._partition]
            if end >= appended:
                return end
            if self._clock() - began > REPLICATED_S:
                raise Unreachable(
                    f"{self.name}: offsets {end:,} to {appended - 1:,} are written and not "
                    "replicated: are enough replicas in sync?"
                )
            self._sleep(PAUSE_S)

    def stored(self, offset: int) -> memoryview:
        """As Destination has it."""
        try:
            fetched = self._cluster.fetch(self._partition, offset, max_bytes=READ_BACK_BYTES)
        except OffsetOutOfRange:
            return memoryview(b"")
        return fetched.entries

    def begin(self, data: bytes | bytearray | memoryview, magic: int) -> None:
        """As Destination has it."""
        if self._begun:
            # Over a new connection this one could be stored although those before it are lost.
            before = self._begun[-1]
            if before.failure or not before.connection.usable:
                raise ConnectionLost(before.failure or f"lost the connection to {self.name}")
        self._begun.append(self._cluster.begin_produce(self._partition, [data], magic=magic))

    def finish(self) -> int:
        """As Destination has it."""
        return self._cluster.finish_produce(self._begun.popleft())

    def forget(self) -> None:
        """As Destination has it."""
        while self._begun:
            self._begun.popleft().connection.close()
