"""The rules that make names of principals out of certificates' subjects
(ssl.principal.mapping.rules).

    RULE:^CN=(.*?),OU=Services.*$/$1/L,RULE:^CN=(.*?),.*$/$1/,DEFAULT

The first rule holds whose pattern matches the whole subject, which is written as in RFC 2253
(KIP-371). The patterns are Python's; those that people write are the same in Java.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,\s*|$)"
)
_REFERENCE = re.compile(r"\\(.)|\$(\d)", re.DOTALL)


class Rule(NamedTuple):
    """A pattern, or None for DEFAULT; what takes its place; L, U or neither for the case."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, subject: str) -> str | None:
        """The name, or None if the rule does not match."""
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = expanded(self.replacement, found)
        if self.case:
            return name.lower() if self.case == "L" else name.upper()
        return name


def parse_rules(text: str) -> tuple[Rule, ...]:
    """The rules in a text. Raises ValueError."""
    rules = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise ValueError(
                f"DEFAULT or RULE:pattern/replacement/[LU] at character {position + 1}"
            )
        position = found.end()
        if found["default"]:
            rules.append(Rule(None, "", ""))
            continue
        try:
            pattern = re.compile(found["pattern"].replace(r"\/", "/"))
        except re.error as error:
            raise ValueError(f"a regular expression: {error}") from None
        rules.append(Rule(pattern, found["replacement"], found["case"]))
    return tuple(rules)


def name_of(subject: str, rules: tuple[Rule, ...]) -> str | None:
    """The name by the first rule that matches; None if none does, or the name is empty."""
    for rule in rules:
        name = rule.apply(subject)
        if name is not None:
            return name or None
    return None


def expanded(replacement: str, found: re.Match[str]) -> str:
    """A replacement as Java writes it ($1, and a backslash before what stands for itself)."""
    return _REFERENCE.sub(lambda one: _referred(one, found), replacement)


def _referred(reference: re.Match[str], found: re.Match[str]) -> str:
    if reference[1] is not None:
        return reference[1]
    group = int(reference[2])
    return reference[0] if group > found.re.groups else found[group] or ""
