"""Work that belongs to one thread and has parts that others may do.

It is a generator. What it yields is either a job, a call that touches files and nothing else, whose
result it is sent (what the job raised is thrown into it); or None, where whoever drives it may do
something else first. The broker runs the jobs on a thread (`broker.metadata.changes`); `run_here`
does all of it at once, for a start, a stop, and programs without a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

Job = Callable[[], Any]
Steps = Generator[Job | None, Any, T]

AT_ONCE = 128
"""Things of some microseconds each that are done before the driver is asked: less than a ms."""


def run_here(steps: Steps[T]) -> T:
    """Take all steps, and do their jobs, before this returns. Raises what they raise."""
    try:
        job = next(steps)
        while True:
            if job is None:
                job = next(steps)
                continue
            try:
                result = job()
            except Exception as error:  # whatever it is, the steps are told, as on a thread
                job = steps.throw(error)
            else:
                job = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
