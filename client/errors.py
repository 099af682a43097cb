"""Failures of what is asked of a cluster, each one line that names the broker, topic or group."""

from __future__ import annotations


class Failure(Exception):
    """One line: what was found, what was wanted, where, and what to do about it.

    From a task of Spark only the text of a traceback comes back, so a message has no line breaks
    and a class makes itself of the message alone.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class WrongUse(Failure):
    """An option or argument that is not known, or contradicts another."""


class ConnectionLost(Failure):
    """There is no connection (any more), or what came over it is not to be understood. The
    connection is closed."""


class NoVersion(Failure):
    """The broker speaks no version of an API that would do."""


class Unreachable(Failure):
    """No broker answers, or what answers is none."""


class NoSuchTopic(Failure):
    """A topic or partition that is not there."""


class CorruptData(Failure):
    """Stored bytes that cannot be what was written: a checksum, a length, a codec's stream."""


class Refused(Failure):
    """The broker does not take what it is given. `code` is Kafka's, 0 where there is none."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
