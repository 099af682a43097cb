"""The errors of a configuration, worded so that they can be put right without a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Problem(NamedTuple):
    """One thing that is wrong.

    `source` says where the value came from ("server.properties:12", "TRIGLOT_NODE_ID",
    "--set", "topic override"); `value` is None where there is none to show, which
    includes passwords; `nearest` is the known key most like an unknown one.
    """

    source: str
    key: str
    value: str | None
    reason: str
    nearest: str | None = None

    def __str__(self) -> str:
        what = self.key if self.value is None else f"{self.key} = {self.value!r}"
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return ": ".join(part for part in (self.source, what, self.reason) if part) + hint


class ConfigError(Exception):
    """A configuration cannot be used. Carries every problem found, not only the first.

    `key`, `value`, `reason`, `nearest` and `source` are those of the first problem, for
    callers that ask about a single value.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))
        first = self.problems[0]
        self.source = first.source
        self.key = first.key
        self.value = first.value
        self.reason = first.reason
        self.nearest = first.nearest


def nearest_of(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None when nothing is like it."""
    from difflib import get_close_matches  # slow to import, and only needed when something is wrong

    found = get_close_matches(name, list(known), n=1, cutoff=0.7)
    return found[0] if found else None
