"""The language of the stories of classic groups: what clients send when, and what comes of it.

    == a title
    rules delay=3 max=2 gathering=0.1    first line, if the rules are not the usual ones
    at 0     join a session=10           process a sends a JoinGroup at 0 s
             -> a: generation 1 as a-1, leads range among a-1:x
    at 3     join b
             -> (waiting)

A process remembers the member id and the generation that it was told, and sends them; `as=` and
`generation=` send others. Ids are the client's name (or the instance) and a number. Versions are
`v=`; the usual ones are 3 for joins, that need no id first, 4 for syncs, that need to name no
protocol, else the newest. Times are seconds.

    join a session=30 rebalance=60 v=3 as=ID instance=I type=consumer protocols=range:x,sticky
    sync a [PROCESS=BYTES ...] v=4 type=T protocol=P      the assignments are the leader's
    heartbeat a          commit a [transactional]         leave a b v=3 [instance=I or I:ID]
    expire               group                            describe             topics
    restart              fails (the last record could not be written)          stop       delete
    connect (somebody opened a connection)               look a (a client looks for the coordinator)

Time passes silently: whatever the group does by itself must stand under an `expire` at that time.
The last three lines need the machine itself; the others can be told to any broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.errors import ErrorCode
from protocol.logdata.membership import Subscription, subscription_of
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.sync_group import SyncGroupRequest
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.support.subscriptions import encode_subscription

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.schema import Message

SCRIPTS = Path(__file__).with_name("scripts")
TOPIC = "stories"
SEVERAL_LEAVE_SINCE = 3
USUAL = {"session": "30", "rebalance": "60", "type": "consumer", "protocols": "range:x"}


@dataclass
class Process:
    """The state of a client."""

    name: str
    member_id: str = ""
    generation: int = -1
    instance: str | None = None


@dataclass
class Command:
    """A line that is not an answer: words, and options."""

    verb: str
    names: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)

    def version(self, usual: int) -> int:
        return int(self.options.get("v", usual))


def stories(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The titles of a file, and the lines under each."""
    title, lines = "", list[str]()
    for line in path.read_text().splitlines():
        if line.startswith("== "):
            if title:
                yield title, lines
            title, lines = line[3:], []
        else:
            lines.append(line)
    yield title, lines


class Teller:
    """Turns commands into requests and answers into text; who carries them is said by `_ask`."""

    #: ms of a second of the story, as session and rebalance timeouts have it.
    second_ms = 1000

    def __init__(self) -> None:
        self.processes: dict[str, Process] = {}

    def _pass_time(self, until_s: float) -> None:
        raise NotImplementedError

    def _ask(self, process: Process, request: Message, version: int) -> list[str]:
        """Send it; what comes of it as text."""
        raise NotImplementedError

    def tell(self, words: list[str]) -> list[str]:
        if words[0] == "at":
            self._pass_time(float(words[1]))
            words = words[2:]
        command = Command(words[0])
        for word in words[1:]:
            key, equals, value = word.partition("=")
            if equals:
                command.options[key] = value
            else:
                command.names.append(word)
        answers = getattr(self, f"_{command.verb}")(command)
        assert isinstance(answers, list)
        return answers

    # Requests

    def _process(self, command: Command) -> Process:
        name = command.names[0]
        return self.processes.setdefault(name, Process(name))

    def _member_id(self, command: Command, process: Process) -> str:
        claimed = command.options.get("as")
        if claimed == "nobody":
            return ""
        return process.member_id if claimed is None else self._id(claimed)

    def _id(self, name: str) -> str:
        """A process stands for the id it has; else it is an id."""
        process = self.processes.get(name)
        return name if process is None else process.member_id

    def _join(self, command: Command) -> list[str]:
        process = self._process(command)
        options = {**USUAL, **command.options}
        process.instance = options.get("instance", process.instance)
        version = command.version(5 if process.instance else 3)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=round(float(options["session"]) * self.second_ms),
            rebalance_timeout_ms=round(float(options["rebalance"]) * self.second_ms),
            member_id=self._member_id(command, process),
            group_instance_id=process.instance,
            protocol_type=options["type"].strip("-"),
            protocols=[_protocol(text) for text in options["protocols"].split(",") if text != "-"],
        )
        return self._ask(process, request, version)

    def _sync(self, command: Command) -> list[str]:
        process = self._process(command)
        options = dict(command.options)
        version = int(options.pop("v", 5 if "protocol" in options else 4))
        request = SyncGroupRequest(
            group_id="g",
            member_id=self._member_id(command, process),
            generation_id=int(options.pop("generation", process.generation)),
            group_instance_id=options.pop("instance", process.instance),
            protocol_type=options.pop("type", None),
            protocol_name=options.pop("protocol", None),
            assignments=[
                SyncGroupRequest.Assignment(member_id=self._id(name), assignment=text.encode())
                for name, text in options.items()
                if name != "as"
            ],
        )
        return self._ask(process, request, version)

    def _heartbeat(self, command: Command) -> list[str]:
        process = self._process(command)
        request = HeartbeatRequest(
            group_id="g",
            member_id=self._member_id(command, process),
            generation_id=int(command.options.get("generation", process.generation)),
            group_instance_id=command.options.get("instance", process.instance),
        )
        return self._ask(process, request, 4)

    def _commit(self, command: Command) -> list[str]:
        process = self._process(command)
        member_id = self._member_id(command, process)
        generation = int(command.options.get("generation", process.generation))
        instance = command.options.get("instance", process.instance)
        if "transactional" in command.names:
            transactional = TxnOffsetCommitRequest(
                transactional_id="t",
                group_id="g",
                producer_id=1,
                producer_epoch=0,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                group_instance_id=instance,
                topics=[],
            )
            return self._ask(process, transactional, 3)
        partition = OffsetCommitRequest.Topic.Partition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[OffsetCommitRequest.Topic(name=TOPIC, partitions=[partition])],
        )
        return self._ask(process, request, 7)

    def _leave(self, command: Command) -> list[str]:
        members = [
            LeaveGroupRequest.Member(member_id=self._id(name), group_instance_id=None)
            for name in command.names
        ]
        for option, value in command.options.items():
            if option.startswith("instance"):
                name, _, member_id = value.partition(":")
                members.append(
                    LeaveGroupRequest.Member(
                        member_id=self._id(member_id) if member_id else "", group_instance_id=name
                    )
                )
        version = command.version(5)
        request = LeaveGroupRequest(group_id="g", member_id=members[0].member_id, members=members)
        return self._ask(Process("left"), request, version)


def _protocol(text: str) -> JoinGroupRequest.Protocol:
    """name:metadata; name:a+b is a subscription to the topics a and b if the sign is there."""
    name, _, metadata = text.partition(":")
    data = metadata.encode()
    if "+" in metadata:
        topics = [topic for topic in metadata.split("+") if topic]
        data = encode_subscription(Subscription(topics))
    return JoinGroupRequest.Protocol(name=name, metadata=data)


def _text(metadata: bytes) -> str:
    subscription = subscription_of(metadata)
    return metadata.decode() if subscription is None else "+".join(subscription.topics)


def joined(response: JoinGroupResponse, process: Process) -> str:
    if response.error_code:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            process.member_id = response.member_id
        elif response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            process.member_id = ""
        told = f", id {response.member_id}" if response.member_id else ""
        return f"{_name(response.error_code)}{told}"
    process.member_id = response.member_id
    process.generation = response.generation_id
    everybody = listed(f"{m.member_id}:{_text(m.metadata)}" for m in response.members)
    if response.leader != response.member_id:
        assert not response.members
        part = f"follows {response.leader} in {response.protocol_name}"
    elif response.skip_assignment:
        part = f"leads {response.protocol_name} without assigning, among {everybody}"
    else:
        part = f"leads {response.protocol_name} among {everybody}"
    return f"generation {response.generation_id} as {response.member_id}, {part}"


def synced(response: Any) -> str:
    if response.error_code:
        return _name(response.error_code)
    assigned = response.assignment.decode() or "nothing"
    return f"assigned {assigned}"


def _name(code: int) -> str:
    return ErrorCode(code).name


def listed(names: Any) -> str:
    return " ".join(names) or "nobody"


def left(response: LeaveGroupResponse, version: int) -> str:
    if version < SEVERAL_LEAVE_SINCE or response.error_code:
        return _name(response.error_code)
    return ", ".join(_name(member.error_code) for member in response.members)
