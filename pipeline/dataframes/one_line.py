"""Failures of ours that a user's program meets in Spark: their line, without a traceback.

A Python worker of Spark sends what was raised in it to the JVM, which puts all of it into the
exception that the program gets: twenty lines of our own source before the one that says what to do.
PySpark leaves them out where SPARK_HIDE_TRACEBACK is set. Here it is set for failures that their
line tells whole, in a worker alone and just before it ends by one; what is a fault of ours, or
of Spark's, keeps its traceback.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDE = "SPARK_HIDE_TRACEBACK"
RUNTIME, WORKER = "SPARK_PYTHON_RUNTIME", "PYTHON_WORKER"
"""By this Spark tells a process that it is a worker."""


@contextmanager
def in_one_line() -> Iterator[None]:
    """Around what Spark calls in a worker, or above it, as a decorator."""
    try:
        yield
    except Failure:
        if os.environ.get(RUNTIME) == WORKER:
            os.environ[HIDE] = "1"
        raise
