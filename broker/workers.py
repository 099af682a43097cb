"""Worker threads, each set with one queue, and jobs that run side by side.

The loop owns all state. A thread is given what it needs, touches files only, and hands its result
back to the loop.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from broker import logs
from protocol.errors import KafkaError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    Failed = Callable[[Exception], None]
    Job = tuple[Callable[[], Any], Callable[[Any], None], Failed | None]

T = TypeVar("T")

SYNCS_AT_ONCE = 8
"""Files that are synced side by side: 64 of them then take 3 ms in place of 10 to 40."""


MOST_EXPAND_BYTES = 8 * 1024 * 1024
"""One worker expands a set or an entry up to here; what goes beyond is for another, so that nobody
who needs less waits for it. Producers with default settings send a MiB, seldom compressed to less
than an eighth. To find that one goes beyond takes some 15 ms."""


class Worker:
    """Threads fed by one queue. The queue's length is bounded by those who feed it: one sync at a
    time, one cold read per connection."""

    __slots__ = ("_count", "_jobs", "_loop", "_name", "_threads")

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, count: int = 1) -> None:
        self._loop = loop
        self._name = name
        self._count = count
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def run(
        self,
        job: Callable[[], T],
        done: Callable[[T], None],
        failed: Failed | None = None,
    ) -> None:
        """Run `job` on a thread, then on the loop `done` with its result, or `failed` with what it
        raised. A fault of ours, neither OSError nor KafkaError, is logged; without `failed` all
        that it raises counts as one."""
        if not self._threads:
            for number in range(self._count):
                thread = threading.Thread(
                    target=self._work, name=f"{self._name}-{number}", daemon=True
                )
                self._threads.append(thread)
                thread.start()
        self._jobs.put((job, done, failed))

    def stop(self) -> None:
        """Finish what is queued and end the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def abandon(self) -> None:
        """End the threads without waiting for them: for jobs that leave nothing half done."""
        for _ in self._threads:
            self._jobs.put(None)
        self._threads.clear()

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done, failed = item
            try:
                result = job()
            except Exception as error:
                if failed is None or not isinstance(error, OSError | KafkaError):
                    self._hand_over(_fault, error)
                if failed is not None:
                    self._hand_over(failed, error)
            else:
                self._hand_over(done, result)
                del result
            del item, job, done, failed  # while it waits it must not keep a deleted file open

    def _hand_over(self, take: Callable[[Any], None], result: Any) -> None:
        """Have the loop take a result, unless it has been closed: then nobody waits for one."""
        try:
            self._loop.call_soon_threadsafe(take, result)
        except RuntimeError:
            if not self._loop.is_closed():
                raise


class SideBySide:
    """Runs jobs that do not need each other, and returns when all are done: syncs of many files,
    which the disk's journal takes together. Its threads are started when first needed; the caller
    takes its share, for a job that is handed over costs two changes of threads.

    For one caller at a time.
    """

    __slots__ = ("_done", "_jobs", "_threads")

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        """What each job that was handed over has raised."""
        self._threads: list[threading.Thread] = []

    def __call__(self, jobs: Iterable[Callable[[], None]]) -> None:
        """Raises what one of the jobs has raised, when all have ended."""
        jobs = list(jobs)
        self._begin(min(len(jobs), SYNCS_AT_ONCE) - 1)
        for job in jobs[1:]:
            self._jobs.put(job)
        found = [_raised(job) for job in jobs[:1]]
        with suppress(queue.Empty):
            while (left := self._jobs.get_nowait()) is not None:
                found.append(_raised(left))
        found += [self._done.get() for _ in range(len(jobs) - len(found))]
        for error in filter(None, found):
            raise error

    def _begin(self, count: int) -> None:
        """Have so many threads, if the system has room for them."""
        while len(self._threads) < count:
            name = f"beside-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return
            self._threads.append(thread)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._done.put(_raised(job))
            del job  # while it waits it must not keep a deleted file open

    def stop(self) -> None:
        """End the threads; it can be called again after that."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()


def _raised(job: Callable[[], None]) -> Exception | None:
    try:
        job()
    except Exception as error:  # of any kind: whoever has asked is told
        return error
    return None


def _fault(error: Exception) -> None:
    logs.fault_once_a_minute("a job on a thread failed", error, "workers")
