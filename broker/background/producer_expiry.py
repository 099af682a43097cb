"""Expiry of producers: those that have been silent for producer.id.expiration.ms are forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.current_settings import CurrentSettings
    from storage.data_dir import DataDirectory


class ProducerExpiry:
    """Belongs to the loop; `run` is a periodic task."""

    def __init__(
        self,
        settings: CurrentSettings,
        directory: DataDirectory,
        *,
        deletion_ms: Callable[[], int],
    ) -> None:
        """`deletion_ms` is the time by which things are deleted for their age, in ms since 1970."""
        self._settings = settings
        self._directory = directory
        self._deletion_ms = deletion_ms

    def run(self) -> None:
        now_ms = self._deletion_ms()
        after_ms = self._settings.current.producer_id_expiration_ms
        for log in self._directory.logs.values():
            log.producers.expire(now_ms=now_ms, after_ms=after_ms)
