"""Faults of a broker under test, declared in Python (docs/faults.md).

    with broker.faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        producer.send("orders", b"one").get(timeout=10)
    assert fault.fired == 2

Every method of `Faults` that adds a fault takes the same filter and the same trigger:

client, topic    a name, or a pattern such as "orders-*"
group            the id of a group that the request names, or a pattern
partition        of the topic; a request about others too is answered for them as ever
times            how often it acts: 1 unless said otherwise, "always", or a number
on_call          the first call, of those that the filter lets through, that it may act on
probability      chance of acting on a call, from `seed`; `times` is "always" then
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from broker.faults.conversations import Sent
from testing.control import ControlError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike
    from types import TracebackType
    from typing import Self, TypedDict, Unpack

    from testing.control import Control

    Api = str | Sequence[str]
    """Kafka's name of an API, several, or "*" for all."""

    class OfDisk(TypedDict, total=False):
        """Filter and trigger of a fault of the disk; the topic is the one whose files are meant."""

        topic: str
        partition: int
        times: int | str
        on_call: int
        probability: float
        seed: int

    class When(OfDisk, total=False):
        """Filter and trigger of a fault of requests."""

        client: str
        group: str

    class Among(TypedDict, total=False):
        """Filter of faults at random."""

        client: str
        topic: str
        group: str


OF_COORDINATORS = (
    *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat"),
    *("OffsetCommit", "OffsetFetch"),
)
"""The APIs of a group that its coordinator alone answers."""


ELECTED_WITHIN_S = 60.0
"""An election takes a sync of the disk."""


class Fault:
    """One fault of a broker, from the time it was made until `remove`, or the end of `with`."""

    def __init__(self, control: Control, shown: dict[str, Any]) -> None:
        self._control = control
        self._shown = shown
        self._removed = False

    @property
    def number(self) -> int:
        return int(self._shown["id"])

    @property
    def seed(self) -> int | None:
        """The seed of its chance; None without a probability."""
        return self._shown.get("seed")

    @property
    def calls(self) -> int:
        """Calls so far that its filter let through."""
        return int(self._now()["calls"])

    @property
    def fired(self) -> int:
        """How often it has acted so far."""
        return int(self._now()["fired"])

    def remove(self) -> None:
        """Take it away; nothing happens the second time. Raises ControlError."""
        if not self._removed:
            self._shown = self._control.delete(f"/faults/{self.number}")
            self._removed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def __str__(self) -> str:
        left_out = ("calls", "fired")
        return ", ".join(f"{key}={self._shown[key]}" for key in self._shown if key not in left_out)

    def _now(self) -> dict[str, Any]:
        if not self._removed:
            self._shown = self._control.get(f"/faults/{self.number}")
        return self._shown


class RandomFaults:
    """Faults at random from one seed, until `remove`, or the end of `with`."""

    def __init__(self, seed: int, faults: Sequence[Fault]) -> None:
        self.seed = seed
        """Given to `Faults.random` again, it has the same calls meet the same faults."""
        self._faults = faults

    @property
    def fired(self) -> int:
        """How often they have acted so far, all together."""
        return sum(fault.fired for fault in self._faults)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults)

    def remove(self) -> None:
        """Take all of them away. Raises ControlError."""
        for fault in self._faults:
            fault.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


class Faults:
    """The faults of one broker. Every method raises ControlError."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def fail(self, api: Api, *, error: str, **when: Unpack[When]) -> Fault:
        """Answer with this error, by Kafka's name of it, where the API has it: for each partition,
        each topic, or the whole. The request takes no effect."""
        return self._add(api, when, error=error)

    def delay(self, api: Api, *, ms: int, **when: Unpack[When]) -> Fault:
        """Let the request take effect, and hold its answer for so long."""
        return self._add(api, when, delay_ms=ms)

    def drop_answer(self, api: Api, **when: Unpack[When]) -> Fault:
        """Let the request take effect, and close the connection instead of answering: what the
        client sends again is there already."""
        return self._add(api, when, close="after")

    def close(self, api: Api, **when: Unpack[When]) -> Fault:
        """Close the connection before the request takes effect."""
        return self._add(api, when, close="before")

    def never_answer(self, api: Api, **when: Unpack[When]) -> Fault:
        """Let the request take effect, and leave the connection open without a word, for good."""
        return self._add(api, when, never_answer=True)

    def throttle(self, api: Api, *, ms: int, **when: Unpack[When]) -> Fault:
        """Answer with this throttle time, and start none of the connection's requests for so long
        (KIP-219)."""
        return self._add(api, when, throttle_ms=ms)

    def full_disk(self, **when: Unpack[OfDisk]) -> Fault:
        """Have the disk take no byte more, until the fault is removed."""
        return self._of_disk(when, disk="full")

    def failed_write(self, **when: Unpack[OfDisk]) -> Fault:
        """Have a write fail (EIO), after which its partition takes no more records until the broker
        is started again."""
        return self._of_disk(when, disk="failed_write")

    def failed_sync(self, **when: Unpack[OfDisk]) -> Fault:
        """Have a sync fail (EIO), with the same effect: nobody knows what is on the disk."""
        return self._of_disk(when, disk="failed_sync")

    def slow_disk(self, *, ms: int, **when: Unpack[OfDisk]) -> Fault:
        """Have every sync take so much longer, until the fault is removed."""
        return self._of_disk(when, disk="slow", delay_ms=ms)

    def random(
        self, *, probability: float = 0.05, seed: int | None = None, **among: Unpack[Among]
    ) -> RandomFaults:
        """Have each request meet errors that may be tried again, lost answers, closed connections
        and delays, each with this probability. The seed is printed to standard error, where pytest
        shows it with a test that fails; giving it again repeats the faults."""
        asked = {"random": True, "probability": probability, **among}
        told = self._control.post("/faults", asked if seed is None else {**asked, "seed": seed})
        print(f"triglot: faults at random, seed={told['seed']}", file=sys.stderr)
        return RandomFaults(told["seed"], [Fault(self._control, one) for one in told["faults"]])

    def load(self, file: str | PathLike[str]) -> None:
        """Have the faults of a file stand, a JSON list as the control port takes it; all of them or
        none. Raises ControlError, with the name of the file."""
        try:
            self._control.post("/faults", json.loads(Path(file).read_bytes()))
        except (OSError, ValueError, ControlError) as error:
            why = getattr(error, "strerror", None) or error
            raise ControlError(f"{file}: {why}") from None

    def move_coordinator(self, group: str, *, times: int = 1) -> Fault:
        """Have the next request of a group that its coordinator alone answers be told
        NOT_COORDINATOR, as after it has moved: clients look for it, and go on without a rebalance.
        `times` is for as many members."""
        return self.fail(OF_COORDINATORS, error="NOT_COORDINATOR", group=group, times=times)

    def rebalance(self, group: str) -> None:
        """Have the partitions of a group assigned anew: the members of a classic one join again;
        those of the consumer protocol (KIP-848) give up everything, and then get it back."""
        self._control.post(f"/groups/{quote(group, safe='')}/rebalance")

    def new_leader_epoch(self, topic: str) -> None:
        """Have the partitions of a topic led in a new epoch, as after an election. A client that
        names the old one is told FENCED_LEADER_EPOCH, and asks for Metadata."""
        self._change(topic, "leader-epoch")

    def truncate(self, topic: str, *, partition: int = 0, offset: int) -> None:
        """The same, and the partition has lost its records from `offset` on, as when a leader is
        lost whose last records nobody else had. The whole batch goes that holds the offset."""
        found = self._change(topic, "truncate", {"partition": partition, "offset": offset})
        if found["partitions"][partition]["end_offset"] > offset:
            raise ControlError(f"{topic}-{partition} was not truncated: the broker's log says why")

    def _change(self, topic: str, what: str, value: Any = None) -> dict[str, Any]:
        """The topic as it is after an election."""
        path = f"/topics/{quote(topic, safe='')}"
        epochs = _epochs(self._control.post(f"{path}/{what}", value))
        deadline = time.monotonic() + ELECTED_WITHIN_S
        while _epochs(found := self._control.get(path)) == epochs:
            if time.monotonic() > deadline:
                raise ControlError(f"no leader of '{topic}' was elected: the broker's log says why")
            time.sleep(0.005)
        return dict(found)

    def standing(self) -> list[Fault]:
        """The faults that act, or would."""
        return self._faults("/faults")

    def unfired(self) -> list[Fault]:
        """Those that never acted since the last `clear`, also such as were removed."""
        return self._faults("/unfired")

    def clear(self) -> None:
        """Remove all, and forget which never acted."""
        self._control.delete("/faults")

    def _add(self, api: Api, when: When, **action: Any) -> Fault:
        described = {"api": api if isinstance(api, str) else list(api), **when, **action}
        return Fault(self._control, self._control.post("/faults", described))

    def _of_disk(self, when: OfDisk, **action: Any) -> Fault:
        return Fault(self._control, self._control.post("/faults", {**when, **action}))

    def _faults(self, path: str) -> list[Fault]:
        return [Fault(self._control, shown) for shown in self._control.get(path)["faults"]]


def _epochs(topic: dict[str, Any]) -> list[int]:
    return [one["leader_epoch"] for one in topic["partitions"]]


class Clock:
    """The clocks and timers of one broker, which go on from where they were moved to."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def now_ms(self) -> int:
        """The broker's time, in ms since 1970. Raises ControlError, as the others do."""
        return int(self._control.get("/clock")["now_ms"])

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let so much time have passed: what fell due meanwhile is begun before this returns, each
        timer once, in the order of their times."""
        self._move("advance_ms", timedelta(days, seconds, 0, 0, minutes, hours))

    def jump(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Set the wall clock, forward or back. No time passes by it, which the broker notices."""
        self._move("jump_ms", timedelta(days, seconds, 0, 0, minutes, hours))

    def _move(self, key: str, by: timedelta) -> None:
        self._control.post("/clock", {key: round(by.total_seconds() * 1000)})


def conversations(
    control: Control, *, client: str | None = None, api: str | None = None, after: int = 0
) -> list[Sent]:
    """The last requests, oldest first: of a client, of an API, with numbers above `after`."""
    asked = {"client": client, "api": api, "after": after or None}
    query = urlencode({key: value for key, value in asked.items() if value is not None})
    return [Sent(**sent) for sent in control.get(f"/requests?{query}")["requests"]]
