"""A group with members of many clients, old and new, in all of which the same assignor is known."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.clients.groups.group import Group
from tests.clients.groups.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.clients.groups.host import Host
    from tests.clients.groups.source import Source


class Mixed(Scene):
    def __init__(self, bootstrap: str, source: Source, folder: Path) -> None:
        super().__init__(Group("group-of-many", bootstrap, source.topic, folder), source)

    def each_client_leads(self, hosts: Sequence[Host]) -> None:
        """They join one after the other and leave in the same order: who is first, leads."""
        begin, group = time.monotonic_ns(), self.group
        for host in hosts:
            group.join(host, f"mixed-{host.client.key}", words=host.client.range_words)
            group.wait_until_shared(f"{host.client.key} joined")
        group.wait_until_read(self._source.next_round())
        for host in hosts[:-1]:
            group.leave(f"mixed-{host.client.key}")
            group.wait_until_shared(f"{host.client.key} left")
        group.wait_until_read(self._source.next_round())
        group.leave(f"mixed-{hosts[-1].client.key}")
        self.findings["once"] = self.ledger.read_twice(begin, time.monotonic_ns())
        self.findings["faults"] = self.ledger.faults()
