"""docs/access.md: what each API asks of the authorizer, from `broker.handlers.access`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.access import CHECKS, ON_CONTROLLERS
from protocol.acls import OPERATION_NAMES, RESOURCE_TYPE_NAMES
from protocol.registry import APIS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.handlers.access import Check

HEAD = """\
# What each API asks of the access rules

The rights that a client needs for each request. They count where `authorizer.class.name` is set;
without it everybody may do everything. `make docs` makes this page. The rules, and who wins among
them, are those of Kafka's StandardAuthorizer: a rule that denies wins, READ, WRITE, DELETE and
ALTER give DESCRIBE along, and ALTER_CONFIGS gives DESCRIBE_CONFIGS. Principals in `super.users`
may do everything.

*Whole* says that without the right nothing of the request is done. Elsewhere each topic, group or
transactional id is looked at by itself, and the others are answered all the same.

| key | API | operation | resource | whole | when |
| ---: | --- | --- | --- | --- | --- |
"""

CONTROLLER_HEAD = """
## On the listeners of the controller

What is not in this table is asked as above.

| key | API | operation | resource | whole | when |
| ---: | --- | --- | --- | --- | --- |
"""


def access_page() -> str:
    return HEAD + _rows(CHECKS) + CONTROLLER_HEAD + _rows(ON_CONTROLLERS, whole=True)


def _rows(table: Mapping[int, tuple[Check, ...]], *, whole: bool = False) -> str:
    return "".join(
        f"| {key} | {APIS[key].name} | {rest} |\n"
        for key, checks in sorted(table.items())
        for rest in ([_cells(check, whole=whole) for check in checks] or ["nothing | | | "])
    )


def _cells(check: Check, *, whole: bool) -> str:
    is_whole = "yes" if whole or check.name is not None else ""
    operation = OPERATION_NAMES[check.operation].replace("-", "_").upper()
    return f"{operation} | {RESOURCE_TYPE_NAMES[check.resource_type]} | {is_whole} | {check.note}"
