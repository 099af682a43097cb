"""A group to which something happens at every step, by a seeded chance."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.clients.groups.group import SESSION_MS, Group
from tests.clients.groups.scene import Scene

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.clients.groups.group_clients import GroupClient
    from tests.clients.groups.host import Host
    from tests.clients.groups.source import Source

MEMBERS_MAX = 20

#: Programs at a time; each has some of the members.
HOSTS = 3

#: Members that join or leave in one step.
STEP_MAX = 4


class Soak(Scene):
    def __init__(
        self,
        client: GroupClient,
        bootstrap: str,
        source: Source,
        folder: Path,
        chance: random.Random,
    ) -> None:
        super().__init__(Group(f"soak-of-{client.key}", bootstrap, source.topic, folder), source)
        self.client = client
        self.steps: list[str] = []
        self._chance = chance
        self._hosts: list[Host] = []
        self._count = 0

    def live(self, until: float) -> None:
        """Steps until this time of the monotonic clock; the last of them is that all leave."""
        try:
            self._join()
            while time.monotonic() < until:
                step = self._chance.choice([self._join, self._join, self._leave, self._hurt])
                self.steps.append(step())
                self.group.wait_until_shared(self.steps[-1])
                if self._chance.random() < 0.5:
                    self.group.wait_until_read(self._source.next_round())
            self.group.wait_until_read(self._source.next_round())
            self.group.leave(*self.group.members)
        finally:
            self.findings["faults"] = self.ledger.faults()

    def _join(self) -> str:
        if len(self._hosts) < HOSTS:
            self._hosts.append(self.group.host(self.client))
        host = self._chance.choice(self._hosts)
        room = MEMBERS_MAX - len(self.group.members)
        count = min(room, self._chance.randint(1, STEP_MAX))
        if count == 0:
            return self._leave()
        for _ in range(count):
            self._count += 1
            self.group.join(host, f"{self.client.key}-{self._count}")
        return f"{count} joined"

    def _leave(self) -> str:
        members = sorted(self.group.members)
        count = min(len(members) - 1, self._chance.randint(1, STEP_MAX))
        if count == 0:
            return self._join()
        self.group.leave(*self._chance.sample(members, count))
        return f"{count} left"

    def _hurt(self) -> str:
        """Kill or pause one program, if others have members; a short pause is no harm."""
        host = self._chance.choice(self._hosts)
        count = len(host.members)
        if count == 0 or count == len(self.group.members):
            return self._join()
        if self._chance.random() < 0.4:
            self._hosts.remove(host)
            self.group.kill(host)
            return f"{count} were killed"
        if self._chance.random() < 0.3:
            self.group.pause(host)
            time.sleep(self._chance.random() * SESSION_MS / 2_000)
            self.group.resume(host, [])
            return f"{count} were paused for a moment"
        self.group.pause(host)
        self.group.wait_until_shared(f"{count} were paused")
        self.group.resume(host, [])
        return f"{count} were paused and expelled"
