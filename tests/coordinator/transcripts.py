"""The stories of classic groups, told by the machine alone.

`python -m tests.coordinator.transcripts FILE` prints a file with the answers as they are.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker.coordinator.classic.arrivals import Arrivals, Search
from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.effects import Append, Caller, GroupRules, Reply
from protocol.logdata.offsets import GroupMetadataValue
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.coordinator.stories import Process, Teller, joined, left, listed, stories, synced

if TYPE_CHECKING:
    from broker.coordinator.effects import Effect
    from protocol.schema import Message
    from tests.coordinator.stories import Command


@dataclass
class Waiter:
    """A request on its way."""

    process: Process
    answers: int = 0


def actual(lines: list[str]) -> list[str]:
    """The story with the answers as they are."""
    told: list[str] = []
    teller: Machine | None = None
    for line in lines:
        words = line.split("#")[0].split()
        if words and words[0] == "rules":
            teller = Machine(_rules(words[1:]))
            told.append(line)
        elif not words:
            told.append(line)
        elif words[0] != "->":
            teller = teller or Machine(GroupRules())
            told.append(line)
            told.extend(f"         -> {answer}" for answer in teller.tell(words))
    return told


class Machine(Teller):
    """Plays one story with a group and a clock of its own."""

    def __init__(self, rules: GroupRules) -> None:
        super().__init__()
        self.now_ms = 0
        self.connections = 0
        self.arrivals = Arrivals(lambda: self.connections)
        self.numbers: dict[str, int] = {}
        self.group = ClassicGroup("g", rules, self.new_member_id)
        self.written: GroupMetadataValue | None = None

    def new_member_id(self, prefix: str) -> str:
        self.numbers[prefix] = self.numbers.get(prefix, 0) + 1
        return f"{prefix}-{self.numbers[prefix]}"

    def _pass_time(self, until_s: float) -> None:
        until_ms = round(until_s * 1000)
        while True:
            deadline_ms = self.group.deadline()
            if deadline_ms is None or deadline_ms >= until_ms:
                break
            answers = self._shown(self.group.expire(deadline_ms, self.arrivals))
            assert not answers, f"untold: at {deadline_ms / 1000} expire -> {answers}"
        self.now_ms = until_ms

    def _ask(self, process: Process, request: Message, version: int) -> list[str]:
        group, now_ms = self.group, self.now_ms
        caller = Caller(process.name, "/10.0.0.1", version)
        if isinstance(request, JoinGroupRequest):
            effects = group.join(Waiter(process), request, caller, now_ms, self.arrivals)
            return self._shown(effects) or ["(waiting)"]
        if isinstance(request, SyncGroupRequest):
            effects = group.sync(Waiter(process), request, caller, now_ms, self.arrivals)
            return self._shown(effects) or ["(waiting)"]
        if isinstance(request, LeaveGroupRequest):
            response, effects = group.leave(request, caller, now_ms)
            return [*self._shown(effects), f"{process.name}: {left(response, version)}"]
        if isinstance(request, HeartbeatRequest):
            return [f"{process.name}: {group.heartbeat(request, now_ms).name}"]
        transactional = isinstance(request, TxnOffsetCommitRequest)
        assert isinstance(request, OffsetCommitRequest | TxnOffsetCommitRequest)
        code = group.check_commit(
            request.member_id,
            request.generation_id_or_member_epoch,
            request.group_instance_id,
            now_ms,
            transactional=transactional,
        )
        return [f"{process.name}: {code.name}"]

    # What happens otherwise

    def _expire(self, command: Command) -> list[str]:
        return self._shown(self.group.expire(self.now_ms, self.arrivals)) or ["(nothing)"]

    def _connect(self, command: Command) -> list[str]:
        self.connections += 1
        return []

    def _look(self, command: Command) -> list[str]:
        self.arrivals.note(Search(self.now_ms, "g", command.names[0]))
        return []

    def _fails(self, command: Command) -> list[str]:
        return self._shown(self.group.append_failed(self.now_ms)) or ["(nothing)"]

    def _stop(self, command: Command) -> list[str]:
        return [*self._shown(self.group.stop()), *self._group(command)]

    def _delete(self, command: Command) -> list[str]:
        return [*self._shown(self.group.delete()), *self._group(command)]

    def _restart(self, command: Command) -> list[str]:
        """From the record last written, as its bytes have it; max= are new rules."""
        assert self.written is not None
        written = GroupMetadataValue.decode(3, self.written.encode(3))
        rules = _rules([f"{key}={value}" for key, value in command.options.items()])
        self.group = ClassicGroup.from_record("g", written, rules, self.new_member_id, self.now_ms)
        return self._group(command)

    def _group(self, command: Command) -> list[str]:
        group = self.group
        deadline_ms = group.deadline()
        return [
            f"{group.state.value}, generation {group.generation_id}, "
            f"leader {group.leader or 'none'}, "
            f"members {listed(member.member_id for member in group.members)}, "
            f"deadline {'none' if deadline_ms is None else f'{deadline_ms / 1000:g}'}"
        ]

    def _describe(self, command: Command) -> list[str]:
        found = self.group.describe()
        answers = [f"{found.state} type {found.protocol_type!r} protocol {found.protocol_name!r}"]
        answers += [
            f"{m.member_id} {m.instance_id} of {m.client_id} at {m.client_host}: "
            f"{m.metadata!r} {m.assignment!r}"
            for m in found.members
        ]
        return answers

    def _topics(self, command: Command) -> list[str]:
        topics = self.group.subscribed_topics()
        return ["unknown" if topics is None else listed(sorted(topics))]

    # Effects as text

    def _shown(self, effects: list[Effect]) -> list[str]:
        return [self._effect(effect) for effect in effects]

    def _effect(self, effect: Effect) -> str:
        if isinstance(effect, Append):
            return self._append(effect)
        assert isinstance(effect, Reply)
        waiter: Waiter = effect.waiter
        waiter.answers += 1
        assert waiter.answers == 1, f"{waiter} is answered twice"
        if isinstance(effect.response, SyncGroupResponse):
            return f"{waiter.process.name}: {synced(effect.response)}"
        return f"{waiter.process.name}: {joined(effect.response, waiter.process)}"

    def _append(self, effect: Append) -> str:
        ((_, value),) = effect.records
        assert isinstance(value, GroupMetadataValue)
        self.written = value
        members = listed(
            f"{member.member_id}:{member.assignment.decode()}" for member in value.members
        )
        return f"written: generation {value.generation} of {value.protocol}, {members}"


def _rules(words: list[str]) -> GroupRules:
    options = dict(word.split("=") for word in words)
    delay_ms = round(float(options.pop("delay", 0)) * 1000)
    gathering_ms = round(float(options.pop("gathering", 0)) * 1000)
    max_size = int(options.pop("max", 2**31 - 1))
    assert not options, f"rules that do not exist: {options}"
    return GroupRules(
        initial_rebalance_delay_ms=delay_ms, gathering_limit_ms=gathering_ms, max_size=max_size
    )


def main() -> None:
    for title, lines in stories(Path(sys.argv[1])):
        print("\n".join([f"== {title}", *actual(lines)]))


if __name__ == "__main__":
    main()
