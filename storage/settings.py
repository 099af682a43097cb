"""The settings of a log."""

from __future__ import annotations

from typing import Protocol


class LogSettings(Protocol):
    """A topic's settings have these fields, under Kafka's names."""

    @property
    def segment_bytes(self) -> int:
        """A segment is never larger (segment.bytes)."""

    @property
    def segment_ms(self) -> int:
        """Most that a segment's timestamps may spread (segment.ms)."""

    @property
    def segment_jitter_ms(self) -> int:
        """The most that is taken off segment_ms (segment.jitter.ms)."""

    @property
    def segment_index_bytes(self) -> int:
        """A segment ends when an index would be larger (segment.index.bytes)."""

    @property
    def index_interval_bytes(self) -> int:
        """Bytes of batches between two index entries (index.interval.bytes)."""

    @property
    def record_format(self) -> int:
        """The magic of what is appended from now on (message.format.version). Appends of another
        one are taken; a segment is begun where it changes."""
