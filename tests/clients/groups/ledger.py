"""Assignments, reads and commits, as the members of a group said them; and the faults in them.

Offsets of the topic are numbers of records: that of number n of partition p is n, its value `p-n`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.clients.groups.source import PARTITIONS, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.clients.groups.host import Event

#: What tells that a member knows its assignment again.
CHANGES = ("gained", "gave", "lost")


class Read(NamedTuple):
    at: int
    member: str
    partition: int
    first: int
    values: list[str]


class Commit(NamedTuple):
    at: int
    member: str
    offsets: dict[int, int]
    #: Why it was refused; "" if it was not.
    why: str


class Stop(NamedTuple):
    """A pause of a member, from the signal until it said anything of its assignment again."""

    member: str
    begin: int
    end: int | None


class Ledger:
    """Of one group. Times are ns of the clock that all programs of a machine share."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.owned: dict[str, set[int]] = {}
        self.reads: list[Read] = []
        self.commits: list[Commit] = []
        self.changes: list[Event] = []
        self.held: dict[str, dict[int, int]] = {}
        self.left: set[str] = set()
        #: Of members that could not go on. The first is the end of the story.
        self.failures: list[str] = []
        #: Of members that began anew.
        self.crashes: list[str] = []
        #: Per partition: the numbers that were read.
        self._seen: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.stops: list[Stop] = []

    def note(self, event: Event) -> None:
        with self._changed:
            self._note(event)
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], what: Callable[[], str], s: float) -> None:
        """Until it is true. Raises AssertionError: a member failed, or the time is over."""
        with self._changed:
            done = self._changed.wait_for(lambda: bool(self.failures) or condition(), s)
            assert not self.failures, self.failures
            assert done, f"after {s} s: {what()}"

    def gone(self, members: set[str]) -> None:
        """They were killed."""
        with self._changed:
            for member in members:
                self.owned.pop(member, None)

    def stopped(self, members: set[str]) -> None:
        """They were paused."""
        with self._changed:
            now = time.monotonic_ns()
            self.stops += [Stop(member, now, None) for member in members]

    def is_shared(self, members: set[str]) -> bool:
        """Whether these own every partition once, and as many as any other, or one less."""
        shares = [self.owned.get(member, set()) for member in members]
        sizes = [len(share) for share in shares]
        whole = set().union(*shares) == set(range(PARTITIONS)) and sum(sizes) == PARTITIONS
        return whole and max(sizes) - min(sizes) <= 1

    def unread(self, written: Sequence[int]) -> dict[int, list[int]]:
        """Per partition: numbers below these counts that nobody read."""
        return {
            partition: missing
            for partition, count in enumerate(written)
            if (missing := sorted(set(range(count)) - self._seen[partition]))
        }

    def ends(self) -> list[int]:
        """Per partition: behind the last record that was read."""
        return [max(seen, default=-1) + 1 for seen in self._seen]

    def has_read(self, written: Sequence[int]) -> bool:
        return all(len(seen) >= count for seen, count in zip(self._seen, written, strict=True))

    def faults(self) -> list[str]:
        """What may not happen to any group, whatever becomes of its members and the broker.

        It ends with the story of the first partition that something happened to.
        """
        found = [*self._wrong_values(), *self._read_after_commit(), *self._moved_back()]
        texts = [f"partition {partition}: {text}" for partition, text in found]
        return texts + (self._story(found[0][0]) if found else [])

    def read_twice(self, begin: int, end: int) -> list[str]:
        """Records that were read more than once between two times."""
        times: dict[tuple[int, int], list[str]] = {}
        for read in self.reads:
            if begin <= read.at <= end:
                for offset in range(read.first, read.first + len(read.values)):
                    times.setdefault((read.partition, offset), []).append(read.member)
        return [f"{place} by {members}" for place, members in times.items() if len(members) > 1]

    def changes_since(self, at: int, members: set[str]) -> list[Event]:
        return [event for event in self.changes if event["at"] >= at and event["member"] in members]

    def committed(self) -> dict[int, int]:
        """Per partition: the offset of the last commit that was acknowledged."""
        found: dict[int, int] = {}
        for commit in sorted(self.commits, key=lambda commit: commit.at):
            if not commit.why:
                found.update(commit.offsets)
        return found

    def _note(self, event: Event) -> None:
        member, name = event["member"], event["event"]
        if name in CHANGES:
            self.changes.append(event)
            self._end_stop(member, event["at"])
            owned = self.owned.setdefault(member, set())
            if name == "gained":
                owned.update(event["partitions"])
            else:
                owned.difference_update(event["partitions"])
        elif name == "read":
            read = Read(event["at"], member, event["partition"], event["offset"], event["values"])
            self.reads.append(read)
            self._seen[read.partition].update(range(read.first, read.first + len(read.values)))
        elif name in ("committed", "refused"):
            offsets = {int(partition): offset for partition, offset in event["offsets"].items()}
            self.commits.append(Commit(event["at"], member, offsets, event.get("why", "")))
        elif name == "crashed":
            self.crashes.append(f"{member}: {event['why']}")
        elif name == "held":
            self.held[member] = event["offsets"]
        elif name == "left":
            self.left.add(member)
            self.owned.pop(member, None)
        else:
            self.failures.append(f"{member} {name}: {event.get('why')}")

    def _end_stop(self, member: str, at: int) -> None:
        for number, stop in enumerate(self.stops):
            if stop.member == member and stop.end is None and at > stop.begin:
                self.stops[number] = stop._replace(end=at)

    def _was_stopped(self, item: Read | Commit) -> bool:
        return any(
            stop.member == item.member
            and stop.begin <= item.at
            and (stop.end is None or item.at <= stop.end)
            for stop in self.stops
        )

    def _wrong_values(self) -> Iterator[tuple[int, str]]:
        for read in self.reads:
            for number, value in enumerate(read.values, read.first):
                if value != value_of(read.partition, number):
                    yield read.partition, f"{read.member} read {value!r} at {number}"

    def _read_after_commit(self) -> Iterator[tuple[int, str]]:
        """A member that was paused may still have records in hand."""
        committed = [0] * PARTITIONS
        by: list[Commit | None] = [None] * PARTITIONS
        items: list[Read | Commit] = [*self.reads, *self.commits]
        for item in sorted(items, key=lambda item: item.at):
            if isinstance(item, Commit):
                for partition, offset in item.offsets.items() if not item.why else ():
                    if offset > committed[partition]:
                        committed[partition], by[partition] = offset, item
            elif item.first < committed[item.partition] and not self._was_stopped(item):
                commit = by[item.partition]
                assert commit is not None
                ms = (item.at - commit.at) / 1e6
                yield (
                    item.partition,
                    f"{item.member} read {item.first} {ms:.0f} ms after {commit.member} "
                    f"committed {committed[item.partition]}",
                )

    def _moved_back(self) -> Iterator[tuple[int, str]]:
        """A member that was paused may still tell of a commit that was answered before; what it
        commits when it goes on, expelled, `Life` looks at."""
        committed = [0] * PARTITIONS
        for commit in sorted(self.commits, key=lambda commit: commit.at):
            for partition, offset in commit.offsets.items() if not commit.why else ():
                if offset < committed[partition] and not self._was_stopped(commit):
                    before = committed[partition]
                    yield partition, f"{commit.member} moved it from {before} to {offset}"
                committed[partition] = max(committed[partition], offset)

    def _story(self, partition: int) -> list[str]:
        """All that was said of a partition, with the seconds at which it was."""
        told = [
            (event["at"], f"{event['member']} {event['event']}")
            for event in self.changes
            if partition in event["partitions"]
        ]
        told += [
            (read.at, f"{read.member} read {read.first} and {len(read.values) - 1} more")
            for read in self.reads
            if read.partition == partition
        ]
        told += [
            (commit.at, f"{commit.member} commits {commit.offsets[partition]} {commit.why}")
            for commit in self.commits
            if partition in commit.offsets
        ]
        told += [(stop.begin, f"{stop.member} is paused") for stop in self.stops]
        told.sort()
        return [f"{(at - told[0][0]) / 1e9:.3f} {text}" for at, text in told]
