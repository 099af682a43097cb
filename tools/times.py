"""Durations and moments as people write them."""

from __future__ import annotations

import re

from broker.clock import ms_of_text

UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}

_PART = r"(\d+(?:\.\d+)?)"
_SHORT = re.compile(rf"(?:{_PART}(ms|[wdhms]))+")
_SHORT_PARTS = re.compile(rf"{_PART}(ms|[wdhms])")
# ISO 8601 without years and months, whose length nobody knows.
_ISO = re.compile(
    rf"P(?=.)(?:{_PART}W)?(?:{_PART}D)?(?:T(?=.)(?:{_PART}H)?(?:{_PART}M)?(?:{_PART}S)?)?"
)


def duration_ms(text: str) -> int:
    """`1h30m`, `90s`, `2d`, `500ms`, or ISO 8601: `PT1H30M`, `P2D`. Raises ValueError."""
    iso = _ISO.fullmatch(text.upper())
    if iso:
        return round(
            sum(
                float(count) * UNITS_MS[unit]
                for count, unit in zip(iso.groups(), "wdhms", strict=True)
                if count
            )
        )
    if not _SHORT.fullmatch(text.lower()):
        raise ValueError(f"wanted a duration such as 1h30m, 2d or PT1H, found '{text}'")
    parts = _SHORT_PARTS.findall(text.lower())
    return round(sum(float(count) * UNITS_MS[unit] for count, unit in parts))


def moment_ms(text: str) -> int:
    """`2026-01-31T12:00:00Z` (UTC where no zone is named), or ms since 1970. Raises ValueError."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return ms_of_text(text)
    except ValueError:
        raise ValueError(
            f"wanted a time such as 2026-01-31T12:00:00Z or ms since 1970, found '{text}'"
        ) from None
