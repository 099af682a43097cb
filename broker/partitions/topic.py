"""A topic and its partitions: settings at hand, logs, and the requests that wait for more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.partitions.internal_topics import INTERNAL
from config import TopicSettings
from protocol.records.compression import NAMES as CODEC_NAMES
from protocol.records.validate import DEFAULT_VALIDATION, ProduceRules, Validation
from storage.errors import LedElsewhere

if TYPE_CHECKING:
    from config import BrokerSettings
    from storage.log import Log


class Watcher(Protocol):
    """A request that waits for a partition to grow: a fetch."""

    def grown(self, size: int) -> None:
        """The partition has `size` more bytes to read."""

    def finish(self) -> None:
        """Something else has changed: look again now."""


class Unwritten(Protocol):
    """The outcome of a batch that is queued in a log: an entry of an answer."""

    error_code: int
    base_offset: int
    log_append_time_ms: int


class Partition:
    """One partition of a topic that exists.

    `unwritten` are the outcomes of batches that are queued in the log and not yet in the file; they
    live for one turn of the loop (see broker.producing.appends).
    """

    __slots__ = (
        *("bytes_in", "bytes_out", "index", "leader_id", "log", "topic", "unwritten"),
        *("unwritten_bytes", "waits"),
    )

    def __init__(self, topic: Topic, index: int, log: Log, *, leader_id: int) -> None:
        """`leader_id` is the id of the broker that leads it, and has its only replica."""
        self.topic = topic
        self.index = index
        self.log = log
        self.leader_id = leader_id
        self.waits: dict[Watcher, None] = {}
        self.unwritten: list[Unwritten] = []
        self.unwritten_bytes = 0
        self.bytes_in = 0
        """Bytes of batches, markers included, that were written since the start."""
        self.bytes_out = 0
        """Bytes of records that answers to fetches have had since the start."""

    @property
    def led_elsewhere(self) -> bool:
        """Whether another process leads it; its log stands in for one that is not here."""
        return self.log.refusal is LedElsewhere

    @property
    def high_watermark(self) -> int:
        """The offset one past the last that readers may see: with one replica, all that is in the
        file."""
        return self.log.written_offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction; without any, the high watermark."""
        return self.log.last_stable_offset

    def wake(self, size: int) -> None:
        """`size` more bytes are readable: tell the fetches that wait here."""
        for wait in list(self.waits):
            wait.grown(size)

    def wake_all(self) -> None:
        """Something else changed (the partition is going away, its log start moved): every fetch
        that waits here has to look again."""
        for wait in list(self.waits):
            wait.finish()


class Topic:
    """A topic that exists, with what the hot path needs computed once per change of settings."""

    __slots__ = (
        "internal",
        "name",
        "overrides",
        "partitions",
        "rules",
        "rules_without_zstd",
        "settings",
        "topic_id",
    )

    def __init__(
        self, name: str, topic_id: bytes, overrides: dict[str, str], broker: BrokerSettings
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.internal = name in INTERNAL
        self.partitions: list[Partition] = []
        self.overrides: dict[str, str]
        self.settings: TopicSettings
        self.rules: ProduceRules
        self.rules_without_zstd: ProduceRules
        self.apply(overrides, broker)

    def apply(self, overrides: dict[str, str], broker: BrokerSettings) -> None:
        """Take these settings from now on. Raises ConfigError."""
        settings = TopicSettings.of(broker, overrides)
        self.overrides = overrides
        self.settings = settings
        codec, level = _target_codec(settings)
        self.rules, self.rules_without_zstd = (
            ProduceRules(
                max_message_bytes=settings.max_message_bytes,
                compacted="compact" in settings.cleanup_policy,
                log_append_time=settings.message_timestamp_type == "LogAppendTime",
                before_max_ms=settings.message_timestamp_before_max_ms,
                after_max_ms=settings.message_timestamp_after_max_ms,
                validation=_validation(broker),
                max_decompressed_bytes=broker.max_decompressed_batch_bytes,
                max_decompression_ratio=broker.max_decompression_ratio,
                zstd_allowed=zstd_allowed and broker.knows_zstd,
                magic=settings.record_format,
                codec=codec,
                level=level,
                segment_bytes=settings.segment_bytes,
            )
            for zstd_allowed in (True, False)
        )
        for partition in self.partitions:
            partition.log.configure(settings)


def _target_codec(settings: TopicSettings) -> tuple[int | None, int | None]:
    """The codec that records have to be stored with, None for the producer's own, and its level,
    None for the codec's default."""
    name = settings.compression_type
    if name == "producer":
        return None, None
    if name == "uncompressed":
        return 0, None
    levels = {
        "gzip": settings.compression_gzip_level,
        "lz4": settings.compression_lz4_level,
        "zstd": settings.compression_zstd_level,
    }
    return CODEC_NAMES.index(name), levels.get(name)


def _validation(broker: BrokerSettings) -> Validation:
    if broker.validation_level == "auto":
        return DEFAULT_VALIDATION
    return Validation[broker.validation_level.upper()]
