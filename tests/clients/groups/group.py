"""One group of members that live in programs, and the ledger of what they do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.clients.groups.host import Host
from tests.clients.groups.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tests.clients.groups.group_clients import GroupClient

#: A member that is killed or paused is missed after it, and one that has only been slow is not.
SESSION_MS = 10_000

HEARTBEAT_MS = 400

#: For members to find together, and for what was written to be read.
PATIENCE_S = 150.0


class Group:
    """The names of its members tell the client, so that a finding does."""

    def __init__(self, name: str, bootstrap: str, topic: str, folder: Path) -> None:
        self.name = name
        self.ledger = Ledger()
        #: Members that should have a share, and the program that each lives in.
        self.members: dict[str, Host] = {}
        self.bootstrap = bootstrap
        self._words = {"bootstrap": bootstrap, "group": name, "topic": topic}
        self._folder = folder
        self._hosts: list[Host] = []

    def host(self, client: GroupClient) -> Host:
        """A new program. Raises `fetched.NotAvailable`."""
        host = Host(client, self._folder)
        self._hosts.append(host)
        return host

    def join(
        self,
        host: Host,
        member: str,
        *,
        instance: str | None = None,
        words: Mapping[str, str] | None = None,
    ) -> None:
        """A member of the static `instance`; `words` instead of those of the client."""
        client = host.client
        pairs: dict[str, object] = {
            **self._words,
            "session_ms": SESSION_MS,
            "heartbeat_ms": HEARTBEAT_MS,
            **(client.words if words is None else words),
        }
        if client.java and client.protocol == "classic":
            pairs["client.session.timeout.ms"] = SESSION_MS
            pairs["client.heartbeat.interval.ms"] = HEARTBEAT_MS
        if instance is not None:
            pairs["client.group.instance.id" if client.java else "instance"] = instance
        self.members[member] = host
        host.join(member, self.ledger.note, **pairs)

    def leave(self, *members: str) -> None:
        """They close, and have committed before."""
        for member in members:
            host = self.members.pop(member)
            host.members.remove(member)
            host.call("leave", member=member)
        self._wait(lambda: self.ledger.left.issuperset(members), lambda: f"{members} did not close")

    def hold(self, member: str) -> None:
        """It stops polling, and will commit again what it has read until now when it is told to."""
        self.ledger.held.pop(member, None)
        self.members[member].call("hold", member=member)
        self._wait(lambda: member in self.ledger.held, lambda: f"{member} does not hold")

    def pause(self, host: Host) -> None:
        """Stop the program of some members until they are expelled."""
        host.pause()
        self.ledger.stopped(host.members)
        self._forget(host)

    def resume(self, host: Host, orders: Sequence[str]) -> None:
        """Let it go on; each of its members does at once what is ordered, and joins again."""
        for member in sorted(host.members):
            for order in orders:
                host.send(order, member=member)
        host.resume()
        for _ in range(len(host.members) * len(orders)):
            host.answer()
        for member in host.members:
            self.members[member] = host

    def kill(self, host: Host) -> None:
        """End the program of some members as a crash would."""
        host.kill()
        self.ledger.gone(host.members)
        self._forget(host)

    def wait_until_shared(self, after: str) -> None:
        """Until each member has its share of the partitions. Raises AssertionError."""
        members = set(self.members)
        self._wait(
            lambda: self.ledger.is_shared(members),
            lambda: (
                f"after {after}, {self.name}: shares of {len(members)} members are "
                + str({member: sorted(self.ledger.owned.get(member, ())) for member in members})
            ),
        )

    def wait_until_read(self, written: Sequence[int]) -> None:
        """Until all these records were read, and the offsets behind them committed."""

        def committed() -> bool:
            found = self.ledger.committed()
            return all(found.get(number, 0) >= count for number, count in enumerate(written))

        self._wait(
            lambda: self.ledger.has_read(written) and committed(),
            lambda: (
                f"{self.name}: not read {self.ledger.unread(written)}, "
                f"committed {self.ledger.committed()} of {written}"
            ),
        )

    def close(self) -> None:
        """Kill what is left."""
        for host in self._hosts:
            host.kill()

    def rest(self, s: float) -> None:
        """Let time go by in which something might happen that should not."""
        time.sleep(s)

    def _forget(self, host: Host) -> None:
        for member in host.members:
            self.members.pop(member, None)

    def _wait(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        self.ledger.wait_for(condition, what, PATIENCE_S)
