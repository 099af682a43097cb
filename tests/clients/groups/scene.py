"""A scene with one group. A part that fails ends it."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.groups.group import Group
    from tests.clients.groups.source import Source


class Scene:
    """A group and what was found of it; its parts are methods of the classes below this one."""

    def __init__(self, group: Group, source: Source) -> None:
        self.group = group
        self.ledger = group.ledger
        #: Why it ended.
        self.error = ""
        #: By claim, what speaks against it.
        self.findings: dict[str, list[str]] = {}
        self._source = source

    def play(self, part: Callable[[], None]) -> None:
        """One of its parts. Raises `NotAvailable`; whatever else is raised becomes the error."""
        if self.error:
            return
        try:
            part()
        except NotAvailable:
            raise
        except Exception as error:
            self.error = "".join(traceback.format_exception(error))
