"""Clients that a test has left: connections that are still open, and members of groups."""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from testing.settings import CLIENT_ID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from testing.contents import Contents

GONE_WITHIN_S = 1.0
"""Time for a thread of the test to close its client. One that the test has closed itself is gone at
the first look."""
SURELY_LEFT_WITHIN_S = 0.1
"""The same, in a test run that has left clients in `PATIENT_MAX` tests."""
PATIENT_MAX = 3
LOOKS_MIN = 5
"""Before anything is told; each has the broker do what has come in meanwhile."""
LOOK_EVERY_S = 0.02
SHOWN = 3
"""Addresses of a client."""


class LeftClients:
    """The clients that are there at the end of a test and were not at its beginning."""

    def __init__(self, contents: Contents, *, is_shared: bool = False) -> None:
        """Of a shared broker the connections count that have named what is of the test alone."""
        self._contents = contents
        self._is_shared = is_shared
        self._before = {one["address"] for one in self._connections()} if is_shared else set()

    def told(self, within_s: float = GONE_WITHIN_S) -> list[str]:
        """A line for each client id and for each group; none if all are closed. Waits so long for
        those that are about to be. Raises ControlError, BrokerFailed."""
        if not self._found():
            return []
        gc.collect()  # librdkafka's producers are closed when nobody knows them any more
        deadline, looks = time.monotonic() + within_s, 1
        while (found := self._found()) and (looks < LOOKS_MIN or time.monotonic() < deadline):
            time.sleep(LOOK_EVERY_S)
            looks += 1
        return found

    def _found(self) -> list[str]:
        connections = [one for one in self._connections() if one["address"] not in self._before]
        if self._is_shared and connections:
            here = self._that_named_ours()
            connections = [one for one in connections if one["address"] in here]
        return [*_of_connections(connections), *self._of_groups(bool(connections))]

    def _connections(self) -> list[dict[str, str]]:
        found = self._contents.control.get("/connections")["connections"]
        return [one for one in found if one["client"] != CLIENT_ID]

    def _that_named_ours(self) -> set[str]:
        sent = self._contents.conversations()
        return {one.address for one in sent if self._contents.prefix in one.text}

    def _of_groups(self, are_connected: bool) -> list[str]:
        """A static member without a connection was left on purpose: its place is kept for it."""
        lines = []
        for group in self._contents.control.get("/groups")["groups"]:
            members = [
                one["client"] for one in group["members"] if are_connected or not one["instance"]
            ]
            if members and group["group"].startswith(self._contents.prefix):
                name = group["group"].removeprefix(self._contents.prefix)
                lines.append(f"group '{name}' still has {_clients(members)} as a member")
        return lines


def _of_connections(connections: Iterable[dict[str, Any]]) -> list[str]:
    by_client: defaultdict[str, list[str]] = defaultdict(list)
    for one in connections:
        by_client[one["client"]].append(one["address"])
    return [
        f"client '{client}' is still connected, from {_listed(addresses)}"
        for client, addresses in sorted(by_client.items())
    ]


def _clients(ids: Iterable[str]) -> str:
    return _listed([f"client '{one}'" for one in sorted(set(ids))])


def _listed(texts: list[str]) -> str:
    more = len(texts) - SHOWN
    return ", ".join(texts[:SHOWN]) + (f" and {more} more" if more > 0 else "")
