"""One telling of a script: a connection to a broker, and what the script has named so far."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.schema import Message
    from tests.support.server_process import ServerProcess

ANSWER_TIMEOUT_S = 15.0
#: How long the same question is asked again while the coordinator is not ready or at work.
PATIENCE_S = 15.0
PAUSE_S = 0.01

#: Added to a producer id to get one that nobody has.
FOREIGN = 1_000_000_000

_PRODUCER = re.compile(r"(?P<name>[a-z]+)(?P<epoch>[+-]\d+)?(?P<foreign>!)?$")

#: A coordinator is looked for, and reads its log, when it is first needed.
NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class NotOffered(Exception):
    """The broker does not offer this version of the request."""


class NoProducer(Exception):
    """The step that should have given this name to a producer was answered an error."""


class Conversation:
    """A connection, the names of one telling, and its producers and members of groups."""

    def __init__(self, server: ServerProcess, prefix: str) -> None:
        self._server = server
        self._prefix = prefix
        self.producers: dict[str, tuple[int, int]] = {}
        #: Member id and generation.
        self.members: dict[str, tuple[str, int]] = {}
        self._labels: dict[int, str] = {}
        self.connect()
        versions = self.caller.call(ApiVersionsRequest(), 0)
        self._offered = {
            entry.api_key: range(entry.min_version, entry.max_version + 1)
            for entry in versions.api_keys
        }

    def connect(self) -> None:
        """Make a connection, the first or one in the place of another that has ended."""
        self.caller = Caller(
            self._server.host, self._server.port, client_id="script", timeout_s=ANSWER_TIMEOUT_S
        )

    def close(self) -> None:
        self.caller.close()

    def call(self, request: Message, version: int) -> Any:
        """The answer. Raises `NotOffered`."""
        if version not in self._offered.get(type(request).key, ()):
            raise NotOffered
        return self.caller.call(request, version)

    def own(self, name: str) -> str:
        """The name of this telling's topic, group or transactional id of that name."""
        return name if name.startswith("__") or not name else self._prefix + name

    def own_pattern(self, pattern: str) -> str:
        """A regular expression for names of this telling; `raw:` leaves it as it is."""
        raw = pattern.removeprefix("raw:")
        return raw if raw != pattern else self._prefix + pattern

    def is_own(self, name: str) -> bool:
        return name.startswith(self._prefix)

    def plain(self, name: str) -> str:
        """A name as the script has it."""
        return name.removeprefix(self._prefix)

    def named(self, topic: str, version: int, first_by_id: int) -> dict[str, Any]:
        """The topic as a struct's fields: by name, or by id from that version on."""
        if version < first_by_id:
            return {"name": self.own(topic)}
        return {"topic_id": self.caller.topic_id(self.own(topic))}

    def producer(self, text: str | None) -> tuple[int, int]:
        """Producer id and epoch of a `by=` word; -1 both without one. Raises `NoProducer`."""
        if text is None:
            return -1, -1
        found = _PRODUCER.match(text)
        assert found is not None, text
        if found["name"] not in self.producers:
            raise NoProducer
        producer_id, epoch = self.producers[found["name"]]
        return producer_id + FOREIGN * bool(found["foreign"]), epoch + int(found["epoch"] or 0)

    def label(self, producer_id: int) -> str:
        """The name of a producer id in answers."""
        if producer_id < 0:
            return str(producer_id)
        if producer_id >= FOREIGN:
            return self.label(producer_id - FOREIGN) + "!"
        return self._labels.setdefault(producer_id, f"P{len(self._labels) + 1}")

    def producer_label(self, producer_id: int, epoch: int) -> str:
        return f"{self.label(producer_id)}/{epoch}"

    def state(self, transactional_id: str) -> str:
        """What DescribeTransactions says, by the whole id; "" where it does not know it."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (found,) = self.caller.call(request, 0).transaction_states
        state: str = found.transaction_state
        return state

    def settle(self, transactional_id: str) -> None:
        """Wait until the coordinator has ended what it is about to end."""
        until(lambda: not self.state(self.own(transactional_id)).startswith("Prepare"))


def until(reached: Callable[[], bool]) -> bool:
    """Whether this came true while there was patience."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if reached():
            return True
        time.sleep(PAUSE_S)
    return False


def code_name(code: int) -> str:
    """The error code as answers have it."""
    return ErrorCode(code).name


def partitions(words: list[str]) -> dict[str, list[str]]:
    """Topic -> what follows the colon, of words as `t:0,t:1=5,u:`."""
    found: dict[str, list[str]] = {}
    for word in words:
        if not re.match(r"\w+:", word):
            continue
        for one in word.split(","):
            topic, _, partition = one.partition(":")
            entries = found.setdefault(topic, [])
            if partition:
                entries.append(partition)
    return found
