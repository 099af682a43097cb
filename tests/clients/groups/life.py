"""The life of the group of one client: members join, leave, are paused and killed."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from tests.clients.groups.group import Group
from tests.clients.groups.group_clients import CLASSIC
from tests.clients.groups.scene import Scene

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.groups.group_clients import GroupClient
    from tests.clients.groups.host import Host
    from tests.clients.groups.source import Source

#: Starting programs at the same time makes all of them slow, and sessions end.
STARTS = threading.Semaphore(3)

#: Longer than a heartbeat and a poll: a rebalance would be seen by then.
REST_S = 1.5


class Life(Scene):
    """One after the other, so that the server may be stopped between two parts."""

    _main: Host | None = None
    _other: Host

    def __init__(
        self, client: GroupClient, size: int, bootstrap: str, source: Source, folder: Path
    ) -> None:
        super().__init__(Group(f"group-of-{client.key}", bootstrap, source.topic, folder), source)
        self.client = client
        self._size = size

    @property
    def main(self) -> Host:
        """The program of the members that are not harmed."""
        assert self._main is not None
        return self._main

    def members_come_and_go(self) -> None:
        """One after the other, without any harm: each record is read once."""
        begin = time.monotonic_ns()
        group, key = self.group, self.client.key
        with STARTS:
            self._main = main = group.host(self.client)
            group.join(main, f"{key}-1")
            group.wait_until_shared("the first member joined")
        for number in (2, 3):
            group.join(main, f"{key}-{number}")
            group.wait_until_shared(f"member {number} joined")
        for number in range(4, self._size + 1):
            group.join(main, f"{key}-{number}")
        group.wait_until_shared(f"{self._size} members joined")
        group.wait_until_read(self._source.next_round())
        group.leave(*(f"{key}-{number}" for number in (1, *range(4, self._size + 1))))
        group.wait_until_shared("all but two members left")
        group.wait_until_read(self._source.next_round())
        found = self.ledger.read_twice(begin, time.monotonic_ns())
        if found:
            found += [str(commit) for commit in self.ledger.commits if commit.why]
        self.findings["once"] = found

    def a_member_is_paused_until_it_is_expelled(self) -> None:
        group, key = self.group, self.client.key
        with STARTS:
            self._other = group.host(self.client)
            group.join(self._other, paused := f"{key}-paused")
            group.wait_until_shared("a third member joined")
        group.wait_until_read(self._source.next_round())
        group.hold(paused)
        held = {int(partition): offset for partition, offset in self.ledger.held[paused].items()}
        group.pause(self._other)
        group.wait_until_shared("a member was paused")
        group.wait_until_read(self._source.next_round())
        begin = time.monotonic_ns()
        group.resume(self._other, ["commit", "go"])
        group.wait_until_shared("it went on")
        answers = [
            commit
            for commit in self.ledger.commits
            if commit.member == paused and commit.at >= begin and commit.offsets == held
        ]
        self.findings["expelled"] = [str(commit) for commit in answers if not commit.why]
        if not answers or not held:
            self.findings["expelled"].append(f"{held} was not tried: {self.ledger.commits[-5:]}")
        group.wait_until_read(self._source.next_round())

    def a_static_member_is_restarted(self) -> None:
        """Within its session: nobody else hears of it. Then the program is killed for good."""
        group, key = self.group, self.client.key
        if self.client.static:
            group.join(self._other, f"{key}-static-1", instance=f"{key}-instance")
            group.leave(f"{key}-paused")
            group.wait_until_shared("a static member took another's place")
            found = self._restart_static(self._other, 1, killed=False)
            if self.client.protocol == CLASSIC:
                with STARTS:
                    host = group.host(self.client)
                    # It is up: its start is no part of the session.
                    self._committed(host, f"{group.name}-unused", "0")
                    found += self._restart_static(host, 2, killed=True)
                self._other = host
            self.findings["static"] = found
            group.join(self._other, f"{key}-dynamic")
            group.wait_until_shared("a member joined a static one")
        group.kill(self._other)
        group.wait_until_shared("a member was killed")
        group.wait_until_read(self._source.next_round())

    def the_server_is_back(self) -> None:
        self.group.wait_until_read(self._source.next_round())
        self.group.wait_until_shared("the server was away")

    def all_leave(self) -> None:
        """What was committed last is what the group finds."""
        self.group.leave(*self.group.members)
        found = self.offsets(self.group.name)
        wanted = self.ledger.committed()
        self.findings["offsets"] = [] if found == wanted else [f"{found} instead of {wanted}"]
        self.findings["faults"] = self.ledger.faults()

    def offsets(self, group: str) -> dict[int, int]:
        partitions = ",".join(map(str, self.ledger.committed()))
        found = self._committed(self.main, group, partitions)
        return {partition: offset for partition, offset, _ in found}

    def _committed(self, host: Host, group: str, partitions: str) -> Any:
        return host.call(
            "get",
            **self.client.words,
            bootstrap=self.group.bootstrap,
            group=group,
            topic=self._source.topic,
            partitions=partitions,
        )

    def _restart_static(self, host: Host, number: int, *, killed: bool) -> list[str]:
        group, key = self.group, self.client.key
        before, after = f"{key}-static-{number}", f"{key}-static-{number + 1}"
        share = set(self.ledger.owned[before])
        others = set(group.members) - {before}
        group.rest(REST_S)
        begin = time.monotonic_ns()
        if killed:
            group.kill(self._other)
        else:
            group.leave(before)
        group.join(host, after, instance=f"{key}-instance")
        group.wait_until_shared("a static member was restarted")
        group.rest(REST_S)
        found = [f"killed={killed}: {event}" for event in self.ledger.changes_since(begin, others)]
        if self.ledger.owned[after] != share:
            found.append(f"killed={killed}: {self.ledger.owned[after]} instead of {share}")
        return found
