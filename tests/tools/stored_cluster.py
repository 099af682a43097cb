"""A cluster whose partitions are lists of batches in memory, for what is read from logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.routing import Topic
from protocol.errors import ErrorCode
from protocol.records.walk import last_offset, walk
from tools.cluster import EARLIEST, LATEST, Cluster, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class StoredLog:
    """Entries with their offsets, one after the other."""

    def __init__(self, *entries: bytes | bytearray, start: int = 0, end: int | None = None) -> None:
        self.entries = [bytes(entry) for entry in entries]
        self.start = start
        self.end = end if end is not None else self._next_offset()

    def _next_offset(self) -> int:
        whole = b"".join(self.entries)
        return max((last_offset(whole, at, magic) + 1 for at, _, magic in walk(whole)), default=0)

    def fetch(self, offset: int, size: int) -> bytes:
        """From the entry with this offset on: the first one whole, the rest cut at `size`."""
        rest = [
            entry
            for entry in self.entries
            if any(last_offset(entry, at, magic) >= offset for at, _, magic in walk(entry))
        ]
        return b"".join(rest)[: max(size, len(rest[0]))] if rest else b""


class StoredCluster(Cluster):
    """Answers for the tool what a cluster of one broker would."""

    def __init__(self, logs: Mapping[TopicPartition, StoredLog]) -> None:
        self.logs = dict(logs)
        self.fetches = 0

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        return {
            name: Topic(bytes(16), {p: 1 for topic, p in self.logs if topic == name}, False)
            for name in names
            if any(topic == name for topic, _ in self.logs)
        }

    def topic_names(self) -> dict[bytes, str]:
        return {}

    def offsets(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int | ErrorCode]:
        assert timestamp_ms in (LATEST, EARLIEST)
        found: dict[TopicPartition, int | ErrorCode] = {}
        for place in partitions:
            log = self.logs.get(place)
            if log is None:
                found[place] = GONE
            else:
                found[place] = log.end if timestamp_ms == LATEST else log.start
        return found

    def fetch(
        self, wanted: Mapping[TopicPartition, int], *, partition_bytes: int, max_bytes: int
    ) -> dict[TopicPartition, bytes | ErrorCode]:
        """The first partition gets a whole entry, the others as much as may be cut (KIP-74)."""
        self.fetches += 1
        found: dict[TopicPartition, bytes | ErrorCode] = {}
        for number, (place, offset) in enumerate(wanted.items()):
            log = self.logs.get(place)
            if log is None:
                found[place] = GONE
                continue
            data = log.fetch(offset, partition_bytes)
            found[place] = data if number == 0 else data[:partition_bytes]
        return found
