"""The broker's settings as they are now, and who is told when they change.

A part that reads a setting each time it needs it holds a `CurrentSettings` and reads `current`. A
part that keeps something made from a setting subscribes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from config import BrokerSettings

    Changed = Callable[[BrokerSettings, BrokerSettings], None]
    """Called with the settings before and after a change."""


class CurrentSettings:
    """Belongs to the loop. `current` is one immutable set of settings; a change replaces it."""

    __slots__ = ("_subscribers", "current")

    def __init__(self, settings: BrokerSettings) -> None:
        self.current = settings
        self._subscribers: list[Changed] = []

    def subscribe(self, changed: Changed) -> None:
        """Have `changed` called after every change, in the order of subscription."""
        self._subscribers.append(changed)

    def replace(self, settings: BrokerSettings) -> None:
        """Let these settings hold from now on, and tell the subscribers if they differ."""
        before, self.current = self.current, settings
        if settings != before:
            for changed in self._subscribers:
                changed(before, settings)
