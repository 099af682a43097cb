"""JoinGroup of a classic group: who is let in, who is sent away, and who waits.

A member without an id gets one first (from version 4 on), a static one takes the place of the
process that had its instance before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from broker.coordinator.classic.answers import described_to_leader, join_refused
from broker.coordinator.classic.arrivals import NOBODY
from broker.coordinator.classic.members import NEVER, Member
from broker.coordinator.classic.rebalance import (
    COMPLETING,
    DEAD,
    EMPTY,
    NONE,
    PREPARING,
    STABLE,
    RebalancingGroup,
)
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.classic.arrivals import Arrivals
    from broker.coordinator.classic.members import Protocols
    from broker.coordinator.effects import Caller, Effect, GroupRules
    from protocol.messages.join_group import JoinGroupRequest

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A new member does not know its id while its join is parked. A client that gave up and asked
again would leave another such member each time; they go when this time has passed."""

PENDING_MAX = 20_000
"""Ids given out to clients that have not joined with them yet. Beyond it the oldest is forgotten;
who comes with it starts again."""

ID_PREFIX_MAX = 8000
"""Characters of a client id that its member ids begin with: the whole must fit a short string."""
STRING_MAX_BYTES = 32_767 - 37
"""Longer texts could not be written into the group's record, nor an id made of one."""

REQUIRE_ID_SINCE = 4
"""The first JoinGroup that may be sent back for an id."""
SKIP_ASSIGNMENT_SINCE = 9
"""The first JoinGroup that tells a leader who is back that there is nothing to assign."""


class Joining(NamedTuple):
    """A JoinGroup and what came with it. `protocols` names each once."""

    waiter: Any
    request: JoinGroupRequest
    protocols: Protocols
    caller: Caller
    now_ms: int
    arrivals: Arrivals


class JoinableGroup(RebalancingGroup):
    """A group with a door. `new_member_id` makes an id that begins with its argument."""

    __slots__ = ("_new_member_id",)

    def __init__(
        self, group_id: str, rules: GroupRules, new_member_id: Callable[[str], str]
    ) -> None:
        super().__init__(group_id, rules)
        self._new_member_id = new_member_id

    def join(
        self,
        waiter: Any,
        request: JoinGroupRequest,
        caller: Caller,
        now_ms: int,
        arrivals: Arrivals = NOBODY,
    ) -> list[Effect]:
        """A member comes, or comes again. Its answer may be among the effects of a later call."""
        joining = Joining(waiter, request, _protocols(request), caller, now_ms, arrivals)
        rules, timeout_ms = self._rules, request.session_timeout_ms
        if not rules.min_session_timeout_ms <= timeout_ms <= rules.max_session_timeout_ms:
            self._refuse(joining, request.member_id, ErrorCode.INVALID_SESSION_TIMEOUT)
        elif not self._has_room_for(request.member_id):
            self._refuse(joining, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
            self._turn_away(request.member_id, now_ms)
        elif code := self._join_refusal(request, joining.protocols):
            self._refuse(joining, request.member_id, code)
        elif not request.member_id:
            self._join_without_id(joining)
        elif request.member_id in self._pending:
            self._add(request.member_id, joining)
        else:
            self._join_again(joining)
        return self._done()

    def _has_room_for(self, member_id: str) -> bool:
        """While a rebalance is prepared only those count that have joined it, so that a group that
        is too large sheds whoever comes last."""
        member = self.members.get(member_id)
        if self.state is PREPARING:
            parked = member is not None and member.join_waiter is not None
            return parked or self.members.awaiting < self._rules.max_size
        if self.state is EMPTY or self.state is DEAD:
            return True
        return member is not None or len(self.members) < self._rules.max_size

    def _turn_away(self, member_id: str, now_ms: int) -> None:
        self._pending.pop(member_id, None)
        member = self.members.get(member_id)
        if member is not None:
            self._remove(member)
        if self.state is PREPARING:
            self._complete_join_if_all_are_here(now_ms)

    def _join_refusal(self, request: JoinGroupRequest, protocols: Protocols) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        names = [name for name, _ in protocols]
        if not all(map(_fits, (request.protocol_type, request.group_instance_id or "", *names))):
            return ErrorCode.INVALID_REQUEST
        if self.state is EMPTY:
            speaks = bool(request.protocol_type and names)
        else:
            speaks = request.protocol_type == self.protocol_type
            speaks = speaks and self.members.all_speak_one_of(names)
        if not speaks:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not request.member_id:
            return NONE
        if request.member_id in self._pending:
            # Such ids are given to dynamic members only.
            dynamic = request.group_instance_id is None
            return NONE if dynamic else ErrorCode.UNKNOWN_MEMBER_ID
        return self._stranger(request.member_id, request.group_instance_id)

    def _join_without_id(self, joining: Joining) -> None:
        caller, instance_id = joining.caller, joining.request.group_instance_id
        if instance_id is not None:
            member_id = self._new_member_id(instance_id)
            known = self.members.by_instance.get(instance_id)
            if known is not None:
                self._replace(self.members.by_id[known], member_id, joining)
            else:
                self._add(member_id, joining)
            return
        member_id = self._new_member_id(caller.client_id[:ID_PREFIX_MAX])
        if caller.version >= REQUIRE_ID_SINCE:
            if self.state is EMPTY and not self._pending:
                self._gathering.see_first(joining.now_ms, joining.arrivals)
            self._expect(member_id, joining.now_ms + joining.request.session_timeout_ms)
            self._refuse(joining, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add(member_id, joining)

    def _expect(self, member_id: str, deadline_ms: int) -> None:
        if len(self._pending) >= PENDING_MAX:
            del self._pending[next(iter(self._pending))]
        self._pending[member_id] = deadline_ms
        self._watch(deadline_ms)

    def _add(self, member_id: str, joining: Joining) -> None:
        if self._pending.pop(member_id, None) is None and self.state is EMPTY:
            self._gathering.see_first(joining.now_ms, joining.arrivals)
        if self.state is PREPARING and not self.generation_id:
            self._wait_for_more = True
        if not self.members:
            self.protocol_type = joining.request.protocol_type
        member = _member(member_id, joining)
        member.is_new = True
        self.members.add(member)
        self._park_join(member, joining)
        self._rebalance(joining.now_ms)

    def _join_again(self, joining: Joining) -> None:
        request = joining.request
        member = self.members.by_id[request.member_id]
        leads = member.member_id == self.members.leader
        if member.protocols == joining.protocols:
            if self.state is COMPLETING:
                # The answer to its join may have been lost.
                members, protocol = self.members, self.protocol_name
                everybody = described_to_leader(members, protocol) if leads else []
                self._reply(joining.waiter, self._joined(member.member_id, everybody))
                return
            if self.state is STABLE and not leads:
                self._reply(joining.waiter, self._joined(member.member_id, []))
                return
        self.members.update(
            member,
            joining.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
        )
        self._park_join(member, joining)
        self._rebalance(joining.now_ms)

    def _replace(self, old: Member, member_id: str, joining: Joining) -> None:
        """Another process takes the place of a static member; the old one is fenced."""
        old_leader = self.members.leader or ""
        self._dismiss(old, ErrorCode.FENCED_INSTANCE_ID, told_id=old.member_id)
        new = _member(member_id, joining)
        new.is_new, new.assignment = old.is_new, old.assignment
        self.members.replace(old, new)
        if old.member_id in self._unsynced:
            self._unsynced.remove(old.member_id)
            self._unsynced.add(member_id)
        if self.state is not STABLE or self.members.vote() != self.protocol_name:
            self._park_join(new, joining)
            self._rebalance(joining.now_ms)
            return
        self._append(replaced=(old, new))
        self._restart_session(new, joining.now_ms)
        leads = member_id == self.members.leader
        if joining.caller.version >= SKIP_ASSIGNMENT_SINCE:
            members, protocol = self.members, self.protocol_name
            answer = self._joined(
                member_id, described_to_leader(members, protocol) if leads else []
            )
            answer.skip_assignment = leads
        else:
            # With the old leader's id the new process does not take itself for the leader: what
            # it assigned would reach nobody in a stable group.
            answer = self._joined(member_id, [])
            answer.leader = old_leader
        self._reply(joining.waiter, answer)

    def _park_join(self, member: Member, joining: Joining) -> None:
        if member.join_waiter is None:
            self.members.awaiting += 1
            give_up_ms = joining.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
            member.deadline_ms = give_up_ms if member.is_new else NEVER
            self._watch(member.deadline_ms)
        else:
            # Kafka leaves the earlier one without an answer; this one any client repeats.
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            refused = join_refused(member.join_version, member.member_id, code)
            self._reply(member.join_waiter, refused)
        member.join_waiter, member.join_version = joining.waiter, joining.caller.version
        self._gathering.see_join(joining.now_ms)

    def _refuse(self, joining: Joining, member_id: str, code: ErrorCode) -> None:
        self._reply(joining.waiter, join_refused(joining.caller.version, member_id, code))


def _protocols(request: JoinGroupRequest) -> Protocols:
    """Each protocol once, the first of a name counts."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return tuple(protocols.items())


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    # Version 0 has none.
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def _fits(text: str) -> bool:
    if len(text) * 4 <= STRING_MAX_BYTES:
        return True
    return len(text.encode("utf-8", "surrogateescape")) <= STRING_MAX_BYTES


def _member(member_id: str, joining: Joining) -> Member:
    request, caller = joining.request, joining.caller
    return Member(
        member_id,
        request.group_instance_id,
        joining.protocols,
        client_id=caller.client_id,
        client_host=caller.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
    )
