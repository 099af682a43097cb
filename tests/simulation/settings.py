"""Settings of simulated topics: small numbers, so that everything happens often."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping


class Settings(NamedTuple):
    """Settings of logs and of cleaning, under Kafka's names."""

    segment_bytes: int = 1 << 20
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    record_format: int = 2
    retention_ms: int = -1
    retention_bytes: int = -1
    retention_min_timestamp: int = -1
    cleanup_policy: str = "delete"
    max_message_bytes: int = 1 << 20
    delete_retention_ms: int = 0
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.0

    def configs(self) -> dict[str, str]:
        """As a topic store keeps them; under names that are not Kafka's, so that `triglot check`
        finds no cleanup.policy, as where a topic has the broker's."""
        return {name: str(value) for name, value in self._asdict().items()}

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Settings:
        defaults = cls()._asdict()
        return cls(**{name: type(defaults[name])(text) for name, text in configs.items()})

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy


def some_settings(rng: random.Random, *, policy: str) -> Settings:
    return Settings(
        segment_bytes=rng.choice((900, 1500, 3000, 8000)),
        segment_ms=rng.choice((20_000, 7 * 24 * 3600 * 1000)),
        segment_index_bytes=rng.choice((36, 96, 10 << 20)),
        index_interval_bytes=rng.choice((0, 150, 400, 1000)),
        record_format=rng.choice((0, 1, 2, 2, 2, 2)),
        retention_ms=rng.choice((-1, 20_000, 200_000)),
        retention_bytes=rng.choice((-1, 4000, 20_000)),
        cleanup_policy=policy,
        delete_retention_ms=rng.choice((0, 0, 5_000)),
        min_compaction_lag_ms=rng.choice((0, 0, 3_000)),
    )
