"""Members of consumer groups in a Python client, each on a thread of its own.

A command is a line of words, `name key=value ...`; its answer is a line of JSON, `{"ok": ...}` or
`{"error": "..."}`. Between answers come events, lines of JSON too: what the members go through.

    join member=M bootstrap= group= topic= session_ms= heartbeat_ms= [instance=] [assignor=]
    hold member=M     stop polling, with everything that was read committed
    commit member=M   while it is held: commit again the last offsets of what it was assigned
    go member=M       end of the hold
    leave member=M    close, with everything that was read committed
    put  bootstrap= group= topic= metadata= offsets=0:5,1:7     commit them as no member
    get  bootstrap= group= topic= partitions=0,1                [[partition, offset, metadata], ...]

Events: `gained`, `gave`, `lost` (partitions); `read` (partition, offset of the first, values);
`committed` and `refused` (offsets; why); `held`; `left`; `failed` (why), or `crashed` where a new
consumer takes the place. `at` is in ns of the clock that all programs of a machine share.

A member polls, tells what it read, and commits exactly that before it polls again. What could not
be committed is tried again, for the last time when the partition is taken away.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Words = dict[str, str]

#: After a commit that failed.
REST_S = 0.1

#: Of what a member has in hand when it leaves.
COMMIT_TRIES = 5

#: (partition, offset, metadata); offset -1 where there is none.
Committed = tuple[int, int, str | None]


class Reports:
    """Events and answers, on what was standard output; whatever else is printed goes to stderr."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream, sys.stdout = sys.stdout, sys.stderr

    def answer(self, fields: dict[str, object]) -> None:
        line = json.dumps(fields)
        with self._lock:
            print(line, file=self._stream, flush=True)

    def event(self, member: str, name: str, **facts: object) -> None:
        self.answer({"at": time.monotonic_ns(), "member": member, "event": name, **facts})


class Notes:
    """A member's position: records read, those not committed yet, and the reports of both."""

    def __init__(self, name: str, reports: Reports) -> None:
        self.name = name
        self._reports = reports
        self.owned: set[int] = set()
        self.last: dict[int, int] = {}
        self.uncommitted: dict[int, int] = {}

    def gained(self, partitions: Iterable[int]) -> None:
        found = sorted(partitions)
        self.owned.update(found)
        self.event("gained", partitions=found)

    def gave(self, partitions: Iterable[int], event: str = "gave") -> None:
        found = sorted(partitions)
        self.owned.difference_update(found)
        for partition in found:
            self.last.pop(partition, None)
            self.uncommitted.pop(partition, None)
        self.event(event, partitions=found)

    def read(self, partition: int, first: int, values: list[str]) -> None:
        """Records of a partition, of consecutive offsets."""
        self.event("read", partition=partition, offset=first, values=values)
        self.last[partition] = self.uncommitted[partition] = first + len(values)

    def committed(self, offsets: dict[int, int]) -> None:
        for partition, offset in offsets.items():
            if self.uncommitted.get(partition) == offset:
                del self.uncommitted[partition]
        self.event("committed", offsets=offsets)

    def refused(self, offsets: dict[int, int], error: BaseException) -> None:
        self.event("refused", offsets=offsets, why=f"{type(error).__name__}: {error}")

    def event(self, name: str, **facts: object) -> None:
        self._reports.event(self.name, name, **facts)


class Consumer(Protocol):
    """A consumer of one library. Its methods may raise anything."""

    def open(self) -> None:
        """Subscribe; from then on `Notes` hear of partitions."""

    def read(self) -> None:
        """Poll once, a tenth of a second, and note what came."""

    def commit(self, offsets: dict[int, int]) -> None: ...

    def close(self) -> None: ...


class ThreadMember:
    """A consumer that blocks, on a thread. Its listener calls `give`."""

    def __init__(
        self, notes: Notes, make: Callable[[Callable[[Iterable[int]], None]], Consumer]
    ) -> None:
        self._notes = notes
        self._consumer = make(self.give)
        self._orders: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def order(self, name: str) -> None:
        """`hold`, `commit`, `go` or `leave`; the events tell when it is done."""
        self._orders.put(name)

    def _run(self) -> None:
        try:
            self._consumer.open()
            while self._obey():
                self._consumer.read()
                self._commit(dict(self._notes.uncommitted))
            for _ in range(COMMIT_TRIES):
                self._commit(dict(self._notes.uncommitted))
            self._consumer.close()
        except Exception as error:
            self._notes.event("failed", why=f"{type(error).__name__}: {error}")
        else:
            self._notes.event("left")

    def _obey(self) -> bool:
        """Carry out what was ordered; False when it was to leave."""
        held: dict[int, int] | None = None
        while held is not None or not self._orders.empty():
            order = self._orders.get()
            if order == "leave":
                return False
            if order == "hold":
                held = dict(self._notes.last)
                self._notes.event("held", offsets=held)
            elif order == "commit":
                self._commit(held or {})
            else:
                held = None
        return True

    def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        try:
            self._consumer.commit(offsets)
        except Exception as error:
            self._notes.refused(offsets, error)
            time.sleep(REST_S)
        else:
            self._notes.committed(offsets)

    def give(self, partitions: Iterable[int]) -> None:
        """They are taken away, and may still be committed."""
        found = set(partitions)
        self._commit({p: at for p, at in self._notes.uncommitted.items() if p in found})
        self._notes.gave(found)


class Member(Protocol):
    def order(self, name: str) -> None: ...


def serve(
    join: Callable[[Words, Notes], Member],
    put: Callable[[Words, dict[int, int]], None],
    get: Callable[[Words, list[int]], list[Committed]],
) -> None:
    """Obey commands until standard input ends."""
    reports = Reports()
    members: dict[str, Member] = {}

    def run(name: str, words: Words) -> Any:
        if name == "put":
            pairs = (pair.split(":") for pair in words["offsets"].split(","))
            put(words, {int(partition): int(offset) for partition, offset in pairs})
        elif name == "get":
            return get(words, [int(text) for text in words["partitions"].split(",")])
        elif name == "join":
            members[words["member"]] = join(words, Notes(words["member"], reports))
        else:
            members[words["member"]].order(name)
        return None

    for line in sys.stdin:
        name, *pairs = line.split()
        words = dict(pair.split("=", 1) for pair in pairs)
        try:
            reports.answer({"ok": run(name, words)})
        except Exception as error:
            reports.answer({"error": f"{type(error).__name__}: {error}"})
