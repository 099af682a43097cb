"""What tests of the broker's parts share."""

from __future__ import annotations

import pytest

from broker import logs


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The events that were written into the log."""
    events: list[str] = []
    for level in ("info", "warning", "error"):
        monkeypatch.setattr(logs, level, lambda event, **facts: events.append(event.split(":")[0]))
    return events
