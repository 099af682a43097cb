"""The failures of a pipeline: one line for the user, what to do, and an exit code of its own.

They are raised wherever the fault is met: before a JVM starts, in the driver, or in a task on an
executor. From a task only the text of a Python traceback comes back through Spark; `find` gets the
failure out of it again, which is why a message is a single line and a class stands for one code.
Those of the client of brokers have their codes here too.
"""

from __future__ import annotations

import re

from client.errors import CorruptData as CorruptData
from client.errors import Failure as Failure
from client.errors import NoSuchTopic as NoSuchTopic
from client.errors import Refused as Refused
from client.errors import Unreachable as Unreachable
from client.errors import WrongUse as WrongUse


class PipelineFailure(Failure):
    """A failure of the pipeline itself, not of the client."""


class ForeignState(PipelineFailure):
    """A checkpoint or destination that belongs to another topic, cluster or job."""


class OffsetsGone(PipelineFailure):
    """Offsets that were to be read do not exist any more (or, on a shorter log, not yet)."""


class CodecMissing(PipelineFailure):
    """A codec's Python package that this machine, or an executor, does not have."""


class NoJava(PipelineFailure):
    """No Java, or one that is too old for Spark."""


class NotInstalled(PipelineFailure):
    """A Python package that the driver or an executor cannot import."""


class Undecodable(PipelineFailure):
    """A record's value, or key, that does not fit its schema, and no place for dead letters."""


class SparkFailed(PipelineFailure):
    """Spark itself failed, in a way that none of the others describes."""


class Different(PipelineFailure):
    """A copy that is not what it was compared with."""


class RulesBroken(PipelineFailure):
    """Data that breaks the rules that it was judged by."""


EXIT_CODES: dict[type[Failure], int] = {
    WrongUse: 2,
    Unreachable: 3,
    NoSuchTopic: 4,
    ForeignState: 5,
    OffsetsGone: 6,
    CorruptData: 7,
    CodecMissing: 8,
    NoJava: 9,
    NotInstalled: 10,
    Refused: 11,
    SparkFailed: 12,
    Different: 13,
    Undecodable: 14,
    RulesBroken: 15,
}
KINDS = {kind.__name__: kind for kind in EXIT_CODES}
_RAISED = re.compile(rf"\b(?:client|pipeline)\.errors\.({'|'.join(KINDS)}): (.+)")


def exit_code(failure: Failure) -> int:
    """The exit code of a command that ends with this failure; 12 for one without a kind."""
    return EXIT_CODES.get(type(failure), EXIT_CODES[SparkFailed])


def find(text: str) -> Failure | None:
    """The last of our failures that a traceback in `text` ends with; None if there is none."""
    found = _RAISED.findall(text)
    if not found:
        return None
    kind, message = found[-1]
    return KINDS[kind](message)
