"""The settings of a test's broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_TESTS = {
    "disk.reserve.bytes": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Of every broker of a test, unless it says otherwise: more would take time and room, and show
nothing. Topics that a `directory` holds stay as they are."""


def texts(settings: Mapping[str, object] | None) -> dict[str, str]:
    """Settings as a properties file has them: `False` is "false"."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (settings or {}).items()
    }
