"""The rules of an audit of data: a TOML file with a table `[[rule]]` for each.

    check = "required"    each record has `field`, and not null
    check = "range"       `field` is a number, not below `min` and not above `max`
    check = "values"      `field` is one of `values`
    check = "json"        the value of a record is JSON
    check = "unique"      no two records of a topic have the same `field`; with `key = true` the
                          same key
    check = "gap"         no longer than `seconds` between a record and the next one in time, of
                          the same partition; with `per = "topic"` of the same topic

A field within another is written "customer.id". Each rule may have a `name` for what is told of it,
and `topics`, a regular expression for the whole name of those it is for. A file is read before
Spark starts, and what is wrong in it is one line that names the rule.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.errors import nearest_of
from pipeline.errors import WrongUse

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUIRED, RANGE, VALUES, JSON, UNIQUE, GAP = CHECKS = (
    *("required", "range", "values"),
    *("json", "unique", "gap"),
)
PARTITION, TOPIC = PER = ("partition", "topic")
RULES_MAX = 200
"""In a file. Each is some columns of one query, or a query of its own."""

_OF_ALL = ("check", "name", "topics")
_KEYS = {
    REQUIRED: ("field",),
    RANGE: ("field", "min", "max"),
    VALUES: ("field", "values"),
    JSON: (),
    UNIQUE: ("field", "key"),
    GAP: ("seconds", "per"),
}
_FIELD = re.compile(r"[^.\[\]'\"`]+(\.[^.\[\]'\"`]+)*")


@dataclass(frozen=True)
class Rule:
    """One rule; what its check has no use for is None."""

    check: str
    name: str
    topics: str | None = None
    """A regular expression for the whole name; None: all topics."""
    field: str | None = None
    key: bool = False
    least: float | None = None
    most: float | None = None
    values: tuple[str, ...] = ()
    """As a field's value is written in JSON, strings without their quotes."""
    longest_ms: int = 0
    per: str = PARTITION

    def is_of(self, topic: str) -> bool:
        """Whether the rule is for a topic."""
        return self.topics is None or re.fullmatch(self.topics, topic) is not None


def read_rules(path: str) -> tuple[Rule, ...]:
    """The rules in a file, in order. Raises WrongUse."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as failure:
        raise WrongUse(f"cannot read the rules in {path}: {failure.strerror or failure}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as failure:
        raise WrongUse(f"{path} is no TOML: {failure}") from None
    for name in content:
        if name != "rule":
            raise WrongUse(f"{path}: unknown key '{name}': rules are tables [[rule]]")
    tables = content.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise WrongUse(f"{path}: wanted a table [[rule]] for each rule, in double brackets")
    if not 0 < len(tables) <= RULES_MAX:
        raise WrongUse(f"{path} has {len(tables)} rules, wanted are 1 to {RULES_MAX}")
    found: dict[str, Rule] = {}
    for number, table in enumerate(tables, start=1):
        rule = _Table(f"{path}, rule {number}", table).rule()
        if found.setdefault(rule.name, rule) is not rule:
            raise WrongUse(f"{path}, rule {number}: there is a rule '{rule.name}': give it a name")
    return tuple(found.values())


class _Table:
    """One table of the file."""

    def __init__(self, where: str, content: dict[str, Any]) -> None:
        self._where = where
        self._content = content

    def rule(self) -> Rule:
        """Raises WrongUse."""
        check = self._one_of("check", CHECKS)
        if check is None:
            raise self._wrong(f"no check: known are {', '.join(CHECKS)}")
        known = (*_OF_ALL, *_KEYS[check])
        for key in self._content:
            if key not in known:
                raise self._wrong(f"check {check} does not know '{key}'{_meant(key, known)}")
        field = self._field(check)
        least, most = self._number("min"), self._number("max")
        if check == RANGE and least is None and most is None:
            raise self._wrong("a range wants min, max or both")
        if least is not None and most is not None and most < least:
            raise self._wrong(f"no number is from {least:g} to {most:g}")
        seconds = self._number("seconds")
        if check == GAP and (seconds is None or not 0.001 <= seconds < 1e9):
            raise self._wrong("a gap wants the seconds that it may last, as in seconds = 600")
        return Rule(
            check,
            self._text("name") or " ".join(filter(None, (check, field or self._of_what(check)))),
            self._pattern(),
            field,
            check == UNIQUE and field is None,
            least,
            most,
            self._values() if check == VALUES else (),
            round((seconds or 0.0) * 1000),
            self._one_of("per", PER) or PARTITION,
        )

    def _of_what(self, check: str) -> str:
        if check == UNIQUE:
            return "key"
        return "of " + str(self._content.get("per", PARTITION)) if check == GAP else ""

    def _field(self, check: str) -> str | None:
        """Raises WrongUse."""
        field = self._text("field")
        key = self._content.get("key")
        if key is not None and key is not True:
            raise self._wrong(f"key is {key!r}, wanted key = true, or a field")
        if "field" in _KEYS[check] and (field is None) is not bool(key):
            raise self._wrong(f"check {check} wants a field, as in field = 'customer.id'")
        if field is not None and _FIELD.fullmatch(field) is None:
            raise self._wrong(f"no field can be '{field}': wanted names with full stops between")
        return field

    def _values(self) -> tuple[str, ...]:
        """Raises WrongUse."""
        values = self._content.get("values")
        if (
            not isinstance(values, list)
            or not values
            or not all(isinstance(one, (str, int)) for one in values)
        ):
            raise self._wrong("values wants a list of strings, whole numbers, true or false")
        return tuple(str(one).lower() if isinstance(one, bool) else str(one) for one in values)

    def _pattern(self) -> str | None:
        """Raises WrongUse."""
        pattern = self._text("topics")
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise self._wrong(f"topics is '{pattern}', no regular expression: {error}") from None
        return pattern

    def _number(self, key: str) -> float | None:
        """Raises WrongUse."""
        value = self._content.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(f"{key} is {value!r}, wanted is a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self._wrong(f"{key} is {value!r}, wanted is a number")
        return number

    def _text(self, key: str) -> str | None:
        """Raises WrongUse."""
        value = self._content.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self._wrong(f"{key} is {value!r}, wanted is a text in quotes")
        return value

    def _one_of(self, key: str, known: Sequence[str]) -> str | None:
        """Raises WrongUse."""
        value = self._text(key)
        if value is not None and value not in known:
            raise self._wrong(f"there is no {key} '{value}'{_meant(value, known)}")
        return value

    def _wrong(self, what: str) -> WrongUse:
        return WrongUse(f"{self._where}: {what}")


def _meant(name: str, known: Sequence[str]) -> str:
    near = nearest_of(name, known)
    return f": did you mean {near}?" if near is not None else f": known are {', '.join(known)}"
