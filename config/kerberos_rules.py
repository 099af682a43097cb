"""The rules that make names of users out of Kerberos principals
(sasl.kerberos.principal.to.local.rules).

    RULE:[1:$1@$0](.*@EXAMPLE\\.COM)s/@.*//L,RULE:[2:$1](kafka|zookeeper),DEFAULT

    RULE:[N:FORMAT](PATTERN)s/FROM/TO/g/L    for principals of N parts before the realm: FORMAT is
                                             filled in ($0 is the realm, $1 and $2 the parts); if
                                             PATTERN matches all of it, FROM becomes TO in it, with
                                             g everywhere; L or U is for the case
    DEFAULT                                  the first part, of principals of our own realm

The first rule that gives a name holds. The grammar is Kafka's. The patterns are Python's; those
that people write are the same in Java. A rule that would fail for each client is refused here,
where Kafka starts and then lets in nobody whom it is for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from config.principal_rules import expanded

if TYPE_CHECKING:
    from collections.abc import Iterable

_RULE = re.compile(
    r"RULE:\[(?P<count>\d+):(?P<format>[^\]]*)\]"
    r"(?:\((?P<pattern>[^)]*)\))?"
    r"(?:s/(?P<start>[^/]*)/(?P<to>[^/]*)/(?P<everywhere>g)?)?"
    r"/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$(\d*)")
_PRINCIPAL = re.compile(r"([^/@\\]+)(?:/([^/@\\]+))?@([^/@\\]+)")
"""One or two parts and a realm. Kafka's brokers take no principal of another form; what is escaped
in one (`\\/`, `\\@`) belongs to a part, and would be read as if it parted them."""
_SEPARATORS = re.compile(r"[/@]")


class KerberosRule(NamedTuple):
    """`format` is None for DEFAULT; then nothing else of it counts."""

    part_count: int
    format: str | None
    pattern: re.Pattern[str] | None
    start: re.Pattern[str] | None
    to: str
    everywhere: bool
    case: str

    def apply(self, realm: str, parts: list[str], our_realm: str) -> str | None:
        """The name, None if the rule is not for such principals."""
        if self.format is None:
            return parts[0] if realm == our_realm else None
        if len(parts) != self.part_count:
            return None
        values = (realm, *parts)
        name = _PARAMETER.sub(lambda found: values[int(found[1])], self.format)
        if self.pattern is not None and self.pattern.fullmatch(name) is None:
            return None
        if self.start is not None:
            count = 0 if self.everywhere else 1
            name = self.start.sub(lambda found: expanded(self.to, found), name, count=count)
        return name

    def in_case(self, name: str) -> str:
        if self.case:
            return name.lower() if self.case == "L" else name.upper()
        return name


DEFAULT = KerberosRule(0, None, None, None, "", False, "")


def parse_kerberos_rules(texts: Iterable[str]) -> tuple[KerberosRule, ...]:
    """The rules of a list. Raises ValueError."""
    return tuple(_parsed(text.strip()) for text in texts)


def short_name(principal: str, rules: Iterable[KerberosRule], our_realm: str) -> str | None:
    """The name of the user by the first rule that gives one; None if none does, or if it gives
    none that is simple: with a realm, with a slash, or empty."""
    found = _PRINCIPAL.fullmatch(principal)
    if found is None:
        return None
    parts = [part for part in (found[1], found[2]) if part is not None]
    for rule in rules:
        name = rule.apply(found[3], parts, our_realm)
        if name is not None:
            return None if _SEPARATORS.search(name) else rule.in_case(name) or None
    return None


def _parsed(text: str) -> KerberosRule:
    if text == "DEFAULT":
        return DEFAULT
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError(f"DEFAULT or RULE:[N:FORMAT](PATTERN)s/FROM/TO/g/L, not {text}")
    count = int(found["count"])
    for parameter in _PARAMETER.findall(found["format"]):
        if not parameter or int(parameter) > count:
            raise ValueError(f"$0 to ${count} in the format of {text}, not ${parameter}")
    pattern, start = _compiled(found["pattern"], text), _compiled(found["start"], text)
    to = found["to"] or ""
    group_count = start.groups if start is not None else 0
    for group in re.findall(r"(?<!\\)\$(\d?)", to):
        if not group or int(group) > group_count:
            raise ValueError(f"$0 to ${group_count} in what takes the place in {text}")
    return KerberosRule(
        count,
        found["format"],
        pattern,
        start,
        to,
        found["everywhere"] is not None,
        found["case"] or "",
    )


def _compiled(pattern: str | None, rule: str) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"a regular expression in {rule}: {error}") from None
