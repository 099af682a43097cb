"""The log of denials: who was refused what, by which rule.

One line for each principal, operation and resource in a minute; with the log level debug, every
denial has one. A client that asks for ever new names gets a line for some of them only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import clock, logs
from protocol.acls import (
    OPERATION_NAMES,
    PATTERN_TYPE_NAMES,
    RESOURCE_TYPE_NAMES,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.security.principal import Principal
    from protocol.logdata.metadata import AccessControlEntryRecord

LINES_MAX = 60
"""Lines about one principal in a minute."""
PRINCIPALS_MAX = 1024
"""Principals whose lines are counted; then counting starts over."""
MINUTE_S = 60.0


class Audit:
    """Writes the lines. `monotonic_s` is a clock in seconds."""

    def __init__(self, monotonic_s: Callable[[], float] = clock.monotonic_s) -> None:
        self._monotonic_s = monotonic_s
        self._since_s = monotonic_s()
        self._said: dict[str, set[tuple[int, int, str]]] = {}

    def denied(
        self,
        principal: Principal,
        host: str,
        operation: int,
        resource_type: int,
        name: str,
        rule: AccessControlEntryRecord | None,
        reason: str,
    ) -> None:
        """Something was not allowed, by a rule or for want of one."""
        who = str(principal)
        if not self._is_due(who, (operation, resource_type, name)):
            say = logs.debug
        else:
            say = logs.warning
        say(
            "access denied",
            principal=who,
            address=host,
            operation=OPERATION_NAMES[operation],
            resource=f"{RESOURCE_TYPE_NAMES[resource_type]} {name!r}",
            reason=reason
            if rule is None
            else f"{reason}: {PATTERN_TYPE_NAMES[rule.pattern_type]} "
            f"{rule.resource_name!r} of {rule.principal} from {rule.host}",
        )

    def _is_due(self, who: str, what: tuple[int, int, str]) -> bool:
        now_s = self._monotonic_s()
        if now_s - self._since_s >= MINUTE_S or len(self._said) >= PRINCIPALS_MAX:
            self._since_s = now_s
            self._said.clear()
        said = self._said.setdefault(who, set())
        if what in said or len(said) >= LINES_MAX:
            return False
        said.add(what)
        return True
