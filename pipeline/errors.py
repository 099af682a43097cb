"""What goes wrong in a pipeline: one line for the user, what to do, and an exit code of its own.

They are raised wherever the fault is met: before a JVM starts, in the driver, or in a task on an
executor. From a task only the text of a Python traceback comes back through Spark; `find` gets the
failure out of it again, which is why a message is a single line and a class stands for one code.
"""

from __future__ import annotations

import re
from typing import ClassVar


class PipelineFailure(Exception):
    """One line: what was found, what was wanted, where, and what to do about it."""

    exit_code: ClassVar[int] = 12

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class WrongUse(PipelineFailure):
    """An option or argument that is not known, or contradicts another."""

    exit_code = 2


class Unreachable(PipelineFailure):
    """No broker answers, or what answers is none."""

    exit_code = 3


class NoSuchTopic(PipelineFailure):
    """A topic or partition that is not there."""

    exit_code = 4


class ForeignState(PipelineFailure):
    """A checkpoint or destination that belongs to another topic, cluster or job."""

    exit_code = 5


class OffsetsGone(PipelineFailure):
    """Offsets that were to be read do not exist any more (or, on a shorter log, not yet)."""

    exit_code = 6


class CorruptData(PipelineFailure):
    """Stored bytes that cannot be what was written: a checksum, a length, a codec's stream."""

    exit_code = 7


class CodecMissing(PipelineFailure):
    """A codec's Python package that this machine, or an executor, does not have."""

    exit_code = 8


class NoJava(PipelineFailure):
    """No Java, or one that is too old for Spark."""

    exit_code = 9


class NotInstalled(PipelineFailure):
    """A Python package that the driver or an executor cannot import."""

    exit_code = 10


class Refused(PipelineFailure):
    """The destination does not take what it is given. `code` is Kafka's, 0 where there is none."""

    exit_code = 11
    code: int = 0


class SparkFailed(PipelineFailure):
    """Spark itself failed, in a way that none of the others describes."""

    exit_code = 12


KINDS: dict[str, type[PipelineFailure]] = {
    kind.__name__: kind
    for kind in (
        WrongUse,
        Unreachable,
        NoSuchTopic,
        ForeignState,
        OffsetsGone,
        CorruptData,
        CodecMissing,
        NoJava,
        NotInstalled,
        Refused,
        SparkFailed,
    )
}
_RAISED = re.compile(rf"\bpipeline\.errors\.({'|'.join(KINDS)}): (.+)")


def find(text: str) -> PipelineFailure | None:
    """The last of our failures that a traceback in `text` ends with; None if there is none."""
    found = _RAISED.findall(text)
    if not found:
        return None
    kind, message = found[-1]
    return KINDS[kind](message)
