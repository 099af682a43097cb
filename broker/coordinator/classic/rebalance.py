"""How a classic group comes to agree: its states, its rebalances, its deadlines.

    Empty --join--> PreparingRebalance --all joined--> CompletingRebalance --leader syncs--> Stable
                            ^                                  |                               |
                            +--- a member comes, goes or changes, or does not sync in time ----+

A group that nobody is left in becomes Empty again, through PreparingRebalance. Deadlines are looked
at when `expire` is called. A heartbeat only moves one, so `deadline` may be too early, never too
late.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from broker.coordinator.classic.answers import described_to_leader, join_refused, sync_refused
from broker.coordinator.classic.arrivals import NOBODY
from broker.coordinator.classic.gathering import Gathering
from broker.coordinator.classic.members import NEVER, Members
from broker.coordinator.effects import Append, Reply
from protocol.errors import ErrorCode
from protocol.logdata.offsets import GroupMetadataKey, GroupMetadataValue
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.coordinator.classic.arrivals import Arrivals
    from broker.coordinator.classic.members import Member
    from broker.coordinator.effects import Effect, GroupRules
    from protocol.logdata.offsets import Record

GENERATION_MAX = 2**31 - 1
ALL_AWAY_RETRY_MS = 1000
"""A rebalance that nobody has joined is looked at again no sooner, whatever timeout is claimed."""
NONE = ErrorCode.NONE


class State(Enum):
    """The value is Kafka's name for it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State

# The only moves there are. Anything else is a bug here, not a client's error.
MOVES: dict[State, frozenset[State]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset(),
}


class RebalancingGroup:
    """A group without its requests. What an operation wants to happen gathers in it until `_done`.

    `generation_id` is 0 as long as there was none, and the group has no record.
    """

    __slots__ = (
        "_effects",
        "_gathering",
        "_initial_left_ms",
        "_join_deadline_ms",
        "_pending",
        "_replaced",
        "_rules",
        "_session_deadline_ms",
        "_sync_deadline_ms",
        "_unsynced",
        "_wait_for_more",
        "current_state_timestamp",
        "generation_id",
        "group_id",
        "members",
        "protocol_name",
        "protocol_type",
        "state",
        "stored",
    )

    def __init__(self, group_id: str, rules: GroupRules) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Members()
        self.current_state_timestamp = -1
        """Of the record last written, ms since 1970; set by whoever writes it."""
        self.stored: GroupMetadataValue | None = None
        """The record last written, set likewise; nobody changes it. Members may be on their way to
        another generation already, of which a start would know nothing."""
        self._rules = rules
        self._pending: dict[str, int] = {}
        """Ids given out and not come back with, and until when they are good."""
        self._unsynced: set[str] = set()
        """Members that have not synced since the generation began."""
        self._session_deadline_ms = NEVER
        """No session and no pending id ends before."""
        self._join_deadline_ms = NEVER
        self._sync_deadline_ms = NEVER
        self._initial_left_ms: int | None = None
        """How long the rebalance of a group that was empty may be put off, None in others."""
        self._wait_for_more = False
        """Whether a member has come since it was last put off."""
        self._gathering = Gathering(group_id, rules.gathering_limit_ms)
        self._replaced: tuple[Member, Member] | None = None
        """The old and the new of a static member, if that is what the last record was about."""
        self._effects: list[Effect] = []

    def _become(self, state: State) -> None:
        assert state in MOVES[self.state], f"{self.group_id}: {self.state} to {state}"
        self.state = state
        self._gathering.stop_looking()

    # Effects

    def _reply(self, waiter: Any, response: JoinGroupResponse | SyncGroupResponse) -> None:
        self._effects.append(Reply(waiter, response))

    def _append(self, *, replaced: tuple[Member, Member] | None = None) -> None:
        self._replaced = replaced
        self._effects.append(Append([self.record()]))

    def _done(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _joined(
        self, member_id: str, everybody: list[JoinGroupResponse.Member]
    ) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=NONE,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.members.leader or "",
            member_id=member_id,
            members=everybody,
        )

    def _synced(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    # Members

    def _stranger(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE for a member. An instance that is a member under another id is fenced."""
        if instance_id is not None:
            known = self.members.by_instance.get(instance_id)
            if known is not None and known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _dismiss(self, member: Member, code: ErrorCode, *, told_id: str) -> None:
        """Answer what the member has parked."""
        if member.join_waiter is not None:
            self.members.awaiting -= 1
            self._reply(member.join_waiter, join_refused(member.join_version, told_id, code))
            member.join_waiter = None
        if member.sync_waiter is not None:
            self._reply(member.sync_waiter, sync_refused(code))
            member.sync_waiter = None

    def _remove(self, member: Member) -> None:
        """The member is out. Whoever calls this lets the group rebalance after it."""
        self._dismiss(member, ErrorCode.UNKNOWN_MEMBER_ID, told_id="")
        self.members.remove(member)
        self._unsynced.discard(member.member_id)

    def _restart_session(self, member: Member, now_ms: int) -> None:
        if member.join_waiter is None and member.sync_waiter is None:
            member.deadline_ms = now_ms + member.session_timeout_ms
            self._watch(member.deadline_ms)

    def _watch(self, deadline_ms: int) -> None:
        if deadline_ms < self._session_deadline_ms:
            self._session_deadline_ms = deadline_ms

    # Rebalances

    def _rebalance(self, now_ms: int) -> None:
        """The members have changed, or one of them has joined."""
        if self.state is PREPARING:
            self._complete_join_if_all_are_here(now_ms)
        else:
            self._prepare(now_ms)

    def _prepare(self, now_ms: int) -> None:
        was_empty = self.state is EMPTY
        if self.state is COMPLETING:
            self._cancel_syncs(now_ms)
        self._unsynced.clear()
        self._sync_deadline_ms = NEVER
        self._become(PREPARING)
        timeout_ms = self.members.rebalance_timeout_ms
        delay_ms = self._rules.initial_rebalance_delay_ms
        if was_empty and delay_ms > 0:
            self._initial_left_ms = max(timeout_ms - delay_ms, 0)
            self._join_deadline_ms = now_ms + delay_ms
        elif was_empty:
            # Not even for ids that are pending: of clients that start together the first would wait
            # for one that has died.
            self._gathering.begin(now_ms)
            self._complete_join(now_ms)
        else:
            self._join_deadline_ms = now_ms + timeout_ms
            self._complete_join_if_all_are_here(now_ms)

    def _cancel_syncs(self, now_ms: int) -> None:
        for member in self.members:
            member.assignment = b""
            if member.sync_waiter is not None:
                self._reply(member.sync_waiter, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
                member.sync_waiter = None
                self._restart_session(member, now_ms)

    def _complete_join_if_all_are_here(self, now_ms: int) -> None:
        members = self.members
        if (
            members.awaiting == len(members)
            and not self._pending
            and self._initial_left_ms is None
            and (not members or self._gathering.is_quiet(now_ms))
        ):
            self._complete_join(now_ms)

    def _join_time_is_up(self, now_ms: int) -> None:
        if self._wait_for_more and self._initial_left_ms:
            delay_ms = min(self._rules.initial_rebalance_delay_ms, self._initial_left_ms)
            self._wait_for_more = False
            self._initial_left_ms -= delay_ms
            self._join_deadline_ms = now_ms + delay_ms
        else:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        members = self.members
        for member in [m for m in members if m.join_waiter is None and m.instance_id is None]:
            self._remove(member)
        self._wait_for_more = False
        self._initial_left_ms = None
        if members and not members.elect_one_that_waits():
            # Only static members, and none is here: they have until their sessions end.
            patience_ms = max(members.rebalance_timeout_ms, ALL_AWAY_RETRY_MS)
            self._join_deadline_ms = now_ms + patience_ms
            return
        self._join_deadline_ms = NEVER
        self.generation_id = self.generation_id + 1 if self.generation_id < GENERATION_MAX else 1
        if not members:
            self.protocol_name = None
            self._session_deadline_ms = min(self._pending.values(), default=NEVER)
            self._become(EMPTY)
            self._append()
            return
        self.protocol_name = members.vote()
        self._become(COMPLETING)
        self._answer_joins(now_ms)
        self._unsynced = set(members.by_id)
        self._sync_deadline_ms = now_ms + members.rebalance_timeout_ms

    def _answer_joins(self, now_ms: int) -> None:
        members = self.members
        members.awaiting = 0
        for member in members:
            waiter, member.join_waiter = member.join_waiter, None
            member.is_new = False
            self._restart_session(member, now_ms)
            if waiter is not None:
                leads = member.member_id == members.leader
                everybody = described_to_leader(members, self.protocol_name) if leads else []
                self._reply(waiter, self._joined(member.member_id, everybody))

    def _assign(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """What the leader has decided reaches everybody; who is not in it gets nothing to read."""
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
        self._become(STABLE)
        self._append()
        for member in self.members:
            if member.sync_waiter is not None:
                self._reply(member.sync_waiter, self._synced(member))
                member.sync_waiter = None
                self._restart_session(member, now_ms)

    # Time

    def deadline(self) -> int | None:
        """When to call `expire` at the latest; None if nothing can run out. May move either way
        with every call."""
        deadline_ms = min(
            self._session_deadline_ms,
            self._join_deadline_ms,
            self._sync_deadline_ms,
            self._gathering.deadline_ms,
        )
        return None if deadline_ms == NEVER else deadline_ms

    def expire(self, now_ms: int, arrivals: Arrivals = NOBODY) -> list[Effect]:
        """Whatever is due: lapsed sessions and ids, a rebalance that has waited enough."""
        if self._session_deadline_ms <= now_ms:
            self._end_sessions(now_ms)
        if self._join_deadline_ms <= now_ms:
            self._join_time_is_up(now_ms)
        if self._sync_deadline_ms <= now_ms:
            self._sync_time_is_up(now_ms)
        if self._gathering.deadline_ms <= now_ms:
            self._gathering_is_due(now_ms, arrivals)
        return self._done()

    def _end_sessions(self, now_ms: int) -> None:
        pending = [member_id for member_id, due in self._pending.items() if due <= now_ms]
        for member_id in pending:
            del self._pending[member_id]
        lapsed = [member for member in self.members if member.deadline_ms <= now_ms]
        for member in lapsed:
            self._remove(member)
        due = min((member.deadline_ms for member in self.members), default=NEVER)
        self._session_deadline_ms = min(due, min(self._pending.values(), default=NEVER))
        if lapsed:
            self._rebalance(now_ms)
        elif pending and self.state is PREPARING:
            self._complete_join_if_all_are_here(now_ms)

    def _gathering_is_due(self, now_ms: int, arrivals: Arrivals) -> None:
        if self.state is PREPARING:
            self._gathering.stop_looking()
            self._complete_join_if_all_are_here(now_ms)
            return
        (alone,) = self.members
        held = self._gathering.take(
            alone.client_id, now_ms, arrivals, is_expecting=bool(self._pending)
        )
        if held is not None:
            self._assign(held, now_ms)

    def _sync_time_is_up(self, now_ms: int) -> None:
        self._sync_deadline_ms = NEVER
        silent = [member for member in self.members if member.member_id in self._unsynced]
        for member in silent:
            self._remove(member)
        if silent:
            self._prepare(now_ms)

    def _has_synced(self, member: Member) -> None:
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._sync_deadline_ms = NEVER

    # Records

    def record(self, wall_ms: int = -1) -> Record:
        """The group as it is now. `wall_ms` is the time since 1970, -1 to be filled in."""
        members = [
            GroupMetadataValue.Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=member.assignment,
            )
            for member in self.members
        ]
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.members.leader,
            current_state_timestamp=wall_ms,
            members=members,
        )
        return GroupMetadataKey(group=self.group_id), value

    def append_failed(self, now_ms: int) -> list[Effect]:
        """The record of the last call was not written; its answers were errors already.

        A static member that was to be replaced is what it was. Members that were to get their
        assignments have to join again. An empty group is empty all the same.
        """
        replaced, self._replaced = self._replaced, None
        if self.state is STABLE and replaced is not None:
            old, new = replaced
            self.members.replace(new, old)
            self._restart_session(old, now_ms)
        elif self.state is STABLE:
            for member in self.members:
                member.assignment = b""
            self._prepare(now_ms)
        return self._done()

    def rebalance(self, now_ms: int) -> list[Effect]:
        """Something has happened that only a new assignment can put right: all are to join."""
        self._rebalance(now_ms)
        return self._done()

    # The end

    def give_way(self) -> list[Effect]:
        """Another group takes the place of this one, with the same members: whoever waits here has
        to join that."""
        return self._end(ErrorCode.REBALANCE_IN_PROGRESS)

    def stop(self) -> list[Effect]:
        """The broker stops: whoever waits is to look for the coordinator again."""
        return self._end(ErrorCode.NOT_COORDINATOR)

    def delete(self) -> list[Effect]:
        """The group is gone: whoever still waits is no member of anything."""
        return self._end(ErrorCode.UNKNOWN_MEMBER_ID)

    def _end(self, code: ErrorCode) -> list[Effect]:
        if self.state is not DEAD:
            self._become(DEAD)
        for member in self.members:
            self._dismiss(member, code, told_id=member.member_id)
        self.members = Members()
        self._pending.clear()
        self._unsynced.clear()
        self._session_deadline_ms = self._join_deadline_ms = self._sync_deadline_ms = NEVER
        return self._done()
