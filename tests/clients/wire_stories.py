"""The stories of classic groups, told to a broker over real connections in real time.

What only the machine can be asked is left out: records written, deadlines, failures. Time passes
in stories that have an `expire`, faster than they say; in the others it stands still.
"""

from __future__ import annotations

import re
import select
import time
from typing import TYPE_CHECKING, Any

from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.sync_group import SyncGroupResponse
from protocol.registry import APIS
from tests.coordinator.stories import Process, Teller, joined, left, synced
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from protocol.schema import Message
    from tests.support.server_process import ServerProcess

#: How long a story waits for an answer that it tells of.
ANSWER_TIMEOUT_S = 5.0
#: How long after the last one that it tells of there must be no other.
QUIET_S = 0.03
#: How long nothing must come of a request that is parked: till then the broker has read it.
PARKED_S = 0.2
#: ms of a story's second where time passes, and how late a timer may be.
SECOND_MS = 150
LATE_S = 0.25

LAST_SECOND = 60
"""Stories that take longer are not told to a broker."""

ONLY_THE_MACHINE = {"restart", "fails", "stop", "delete", "topics", "transactional"}
NOT_TOLD = {"group"}

_MEMBER_ID = re.compile(r"(\w*)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_for_brokers(lines: list[str]) -> bool:
    """Whether a broker with the usual rules can be told this story."""
    words = [line.split() for line in lines if not line.startswith("#")]
    used = {word for line in words if line[:1] != ["->"] for word in line}
    seconds = [float(line[1]) for line in words if line[:1] == ["at"]]
    takes_too_long = "expire" in used and max(seconds) > LAST_SECOND
    return not (used & ONLY_THE_MACHINE or "rules" in used or takes_too_long)


def as_brokers_answer(answers: list[str]) -> list[str]:
    """What is left of the answers under a command when only clients are heard, in no order."""
    heard = [_unordered(answer) for answer in answers if not answer.startswith("written:")]
    return sorted(heard) or ["(nothing)"]


def _unordered(answer: str) -> str:
    before, among, members = answer.partition(" among ")
    return before + among + " ".join(sorted(members.split()))


def commands(lines: list[str]) -> list[tuple[list[str], list[str]]]:
    """The words of each command that a broker can be told, and the answers under it."""
    told: list[tuple[list[str], list[str]]] = []
    for line in lines:
        words = line.split("#")[0].split()
        if words[:1] == ["->"]:
            told[-1][1].append(" ".join(words[1:]))
        elif words:
            told.append((words, []))
    return [(words, answers) for words, answers in told if not NOT_TOLD & set(words)]


class WireTeller(Teller):
    """Tells one story about a group of its own. Each request has a connection of its own, for a
    broker reads nothing more from one whose request is parked."""

    def __init__(self, server: ServerProcess, group_id: str, *, in_real_time: bool) -> None:
        super().__init__()
        self.second_ms = SECOND_MS if in_real_time else 1000
        self._server = server
        self._group_id = group_id
        self._in_real_time = in_real_time
        self._started = time.monotonic()
        self._parked: dict[WireClient, tuple[Process, Any, int, int]] = {}
        self._pretty: dict[str, str] = {}
        self._real: dict[str, str] = {}
        self._expected = 0

    def answers(self, words: list[str], expected: list[str]) -> list[str]:
        """What comes of a command; `expected` says for how many answers to wait."""
        self._expected = sum(":" in answer for answer in as_brokers_answer(expected))
        return as_brokers_answer([self._prettified(answer) for answer in self.tell(words)])

    def close(self) -> None:
        for client in self._parked:
            client.close()

    def _pass_time(self, until_s: float) -> None:
        if self._in_real_time:
            due = self._started + until_s * self.second_ms / 1000
            time.sleep(max(due - time.monotonic(), 0))

    def _id(self, name: str) -> str:
        member_id = super()._id(name)
        return self._real.get(member_id, member_id)

    def _ask(self, process: Process, request: Any, version: int) -> list[str]:
        request.group_id = self._group_id
        client = WireClient(
            self._server.host, self._server.port, client_id=process.name, timeout_s=ANSWER_TIMEOUT_S
        )
        correlation_id = client.send(request, version)
        self._parked[client] = (process, APIS[type(request).key], version, correlation_id)
        return self._heard() or ["(waiting)"]

    def _expire(self, _command: object) -> list[str]:
        time.sleep(LATE_S)
        return self._heard()

    def _describe(self, _command: object) -> list[str]:
        request = DescribeGroupsRequest(groups=[self._group_id])
        with WireClient(self._server.host, self._server.port) as client:
            (found,) = client.call(request, 5).groups
        return [
            f"{found.group_state} type {found.protocol_type!r} protocol {found.protocol_data!r}",
            *(
                f"{member.member_id} {member.group_instance_id} of {member.client_id} "
                f"at {'/10.0.0.1' if member.client_host == '/127.0.0.1' else member.client_host}: "
                f"{member.member_metadata!r} {member.member_assignment!r}"
                for member in found.members
            ),
        ]

    def _heard(self) -> list[str]:
        heard: list[str] = []
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            if len(heard) < self._expected:
                left_s = deadline - time.monotonic()
            else:
                left_s = QUIET_S if heard else PARKED_S
            by_socket = {client.socket: client for client in self._parked}
            readable, _, _ = select.select(by_socket, [], [], max(left_s, 0))
            if not readable:
                return heard
            for socket in readable:
                client = by_socket[socket]
                process, api, version, correlation_id = self._parked.pop(client)
                response = client.receive(api, version, correlation_id)
                heard.append(f"{process.name}: {self._answer(response, version, process)}")
                client.close()

    def _answer(self, response: Message, version: int, process: Process) -> str:
        if isinstance(response, JoinGroupResponse):
            return joined(response, process)
        if isinstance(response, SyncGroupResponse):
            return synced(response)
        if isinstance(response, LeaveGroupResponse):
            return left(response, version)
        if isinstance(response, OffsetCommitResponse):
            return ErrorCode(response.topics[0].partitions[0].error_code).name
        return ErrorCode(response.error_code).name  # type: ignore[attr-defined]

    def _prettified(self, answer: str) -> str:
        return _MEMBER_ID.sub(self._pretty_id, answer)

    def _pretty_id(self, found: re.Match[str]) -> str:
        pretty = self._pretty.get(found[0])
        if pretty is None:
            number = sum(known.startswith(f"{found[1]}-") for known in self._real) + 1
            pretty = f"{found[1]}-{number}"
            self._pretty[found[0]], self._real[pretty] = pretty, found[0]
        return pretty
