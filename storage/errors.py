"""The errors of storage: those a client is told, and those that stop a start.

The first family carries an error code (`KafkaError`); the second, `DataDirectoryError`, is for
the operator: its text is one sentence that names the file and says what was wanted.
"""

from __future__ import annotations

import errno

from protocol.errors import ErrorCode, KafkaError
from protocol.records.errors import CorruptBatch

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The disk or the user's share of it is full. It need not stay so."""

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""The process, or the system, has no descriptor left. Nothing was tried, so nothing is lost."""

BROKEN = frozenset(
    getattr(errno, name)
    for name in ("EIO", "EROFS", "ENODEV", "ENXIO", "ESTALE", "EUCLEAN")
    if hasattr(errno, name)  # the last is Linux's own
)
"""The disk has failed. What it says later is not to be believed."""


def is_disk_full(error: BaseException | None) -> bool:
    """Whether this error, or one that it came from, says that there is no room."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # an error can be its own cause
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        seen.add(id(error))
        error = error.__cause__
    return False


class OffsetOutOfRange(KafkaError):
    """The offset asked for is not in the log."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside {start}..{end}")


class RecordsMissing(CorruptBatch):
    """A segment that the log has had is not there: what it held can't be read, nor passed over as
    if it had been compacted."""


class StorageError(KafkaError):
    """The disk refused. Nothing of what was being written is in the log."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogFailed(StorageError):
    """The log takes no more appends until it is opened again; what was written is still read."""


class LedElsewhere(KafkaError):
    """Another process leads the partition; clients look for its leader and ask that."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class BatchTooLarge(KafkaError):
    """One batch, or set that is appended as a whole, is larger than a segment may be."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a set of {size} bytes does not fit a segment of {limit}")


class OutOfOrderSequence(KafkaError):
    """A producer left out a batch, or starts a new epoch with a sequence other than 0."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class ProducerFenced(KafkaError):
    """A producer speaks with an epoch older than one already seen."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class CoordinatorFenced(KafkaError):
    """A transaction coordinator ends a transaction with an epoch older than one already seen."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class OutsideTransaction(KafkaError):
    """A producer with an open transaction sends a batch that does not belong to it."""

    code = ErrorCode.INVALID_TXN_STATE


class DataDirectoryError(Exception):
    """The data directory cannot be used as it is. The broker does not start."""


class LockHeld(DataDirectoryError):
    """Another process serves this data directory."""


class MalformedFile(Exception):
    """A control file is not what its page in docs/formats says. The caller knows what is lost."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
