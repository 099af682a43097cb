"""The members of a classic group: who they are, what they can speak, who leads, who is parked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    Protocols = tuple[tuple[str, bytes], ...]
    """Names and metadata in the member's order of preference, each name once."""

NEVER = 1 << 62
"""A deadline that does not come; ms like the others."""


class Member:
    """One member. `deadline_ms` is when its session ends unless it is heard of: `NEVER` while a
    request of it is parked, for then it cannot speak.

    `is_new` until its first join has been answered: it may not know its id, so nobody would miss
    it.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join_version",
        "join_waiter",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        protocols: Protocols,
        *,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.protocols = protocols
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.assignment = b""
        self.is_new = False
        self.deadline_ms = NEVER
        self.join_waiter: Any = None
        self.join_version = 0
        self.sync_waiter: Any = None

    def metadata(self, protocol: str | None) -> bytes:
        """The metadata of the member for the protocol; empty if it does not speak it."""
        for name, data in self.protocols:
            if name == protocol:
                return data
        return b""


class Members:
    """In the order in which they came. The first is the leader, and the next one after it has gone;
    a static member that comes back goes to the end.

    `awaiting` counts those whose join is parked. Nothing here depends on how many there are except
    votes, and a leader's search.
    """

    __slots__ = ("_speakers", "awaiting", "by_id", "by_instance", "leader")

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.by_instance: dict[str, str] = {}
        self.leader: str | None = None
        self.awaiting = 0
        self._speakers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def __contains__(self, member_id: object) -> bool:
        return member_id in self.by_id

    def get(self, member_id: str) -> Member | None:
        return self.by_id.get(member_id)

    def add(self, member: Member) -> None:
        """A member that is not here yet, neither its id nor its instance."""
        assert member.member_id not in self.by_id
        if member.instance_id is not None:
            assert member.instance_id not in self.by_instance
            self.by_instance[member.instance_id] = member.member_id
        self.by_id[member.member_id] = member
        if self.leader is None:
            self.leader = member.member_id
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        """It leaves; what it has parked must have been answered."""
        assert member.join_waiter is None
        assert member.sync_waiter is None
        del self.by_id[member.member_id]
        if member.instance_id is not None:
            del self.by_instance[member.instance_id]
        self._count(member, -1)
        if self.leader == member.member_id:
            self.leader = next(iter(self.by_id), None)

    def replace(self, old: Member, new: Member) -> None:
        """A static member goes on as another process; the leader stays the leader."""
        assert old.instance_id is not None
        assert old.instance_id == new.instance_id
        leads = self.leader == old.member_id
        self.remove(old)
        self.add(new)
        if leads:
            self.leader = new.member_id

    def update(
        self,
        member: Member,
        protocols: Protocols,
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """It has come again with other wishes, or the same."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def _count(self, member: Member, change: int) -> None:
        speakers = self._speakers
        for name, _ in member.protocols:
            count = speakers.get(name, 0) + change
            if count:
                speakers[name] = count
            else:
                del speakers[name]

    def all_speak_one_of(self, names: Collection[str]) -> bool:
        """Whether every member speaks at least one and the same of these."""
        return any(self._speakers.get(name, 0) == len(self.by_id) for name in names)

    def vote(self) -> str:
        """The protocol that most members like best among those that all of them speak; of equals
        the one that was voted for first."""
        count = len(self.by_id)
        candidates = {name for name, speakers in self._speakers.items() if speakers == count}
        votes: dict[str, int] = {}
        for member in self.by_id.values():
            choice = next(name for name, _ in member.protocols if name in candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def elect_one_that_waits(self) -> bool:
        """Have a leader whose join is parked. False if no member's is."""
        leader = self.by_id[self.leader] if self.leader is not None else None
        if leader is not None and leader.join_waiter is not None:
            return True
        for member in self.by_id.values():
            if member.join_waiter is not None:
                self.leader = member.member_id
                return True
        return False

    @property
    def rebalance_timeout_ms(self) -> int:
        """The patience of the most patient."""
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0)
