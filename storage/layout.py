"""Names of folders and files, as Apache Kafka names them (docs/formats).

A partition lives in `<topic>-<partition>/`. Its files are named by an offset in twenty decimal
digits and a suffix; the suffix says what the file promises.
"""

from __future__ import annotations

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
CLEAN_STATE = ".pystate.json"
META_PROPERTIES = "meta.properties"
METADATA_LOG = "__cluster_metadata-0"
RESERVE = ".triglot-reserve"  # nothing but room, given up when the disk is full
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
SYNCED_POINTS = "synced-offset-checkpoint"  # batches alone, without their indexes; ours
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLOCK = "clock-checkpoint"  # how far the wall clock was believed; ours
CLIENTS = "clients.json"  # who has used the broker, and how; ours
TAKEN_OVER = "taken-over-checkpoint"  # what other brokers wrote; ours
CHECKPOINTS_TURN = ".checkpoints-turn"  # held by the process that writes one; ours, and empty

PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"
RECEIVE_TIMES = "receive-times-checkpoint"
REPLACEMENT = "replacement-checkpoint"  # only while segments are being replaced

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
CUT = ".cut-"  # appended to a .log with an offset: what recovery took off the end; ours
DELETED = ".deleted"  # appended to a whole name: to be removed, also after a restart
CLEANED = ".cleaned"  # appended: the unfinished output of a compaction
SWAP = ".swap"  # appended: a finished replacement that waits to be renamed

SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)
"""The files of one segment, in the order in which they are renamed."""

DELETE_SUFFIX = "-delete"
OTHER_SUFFIXES = ("-future", "-stray")

FILE_NAME_MAX = 255
OFFSET_DIGITS = 20
LARGEST_OFFSET = 2**63 - 1


def file_name(offset: int, suffix: str) -> str:
    """`file_name(5, ".log")` is `00000000000000000005.log`."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file's name, or None if this is not such a file."""
    if len(name) != OFFSET_DIGITS + len(suffix) or not name.endswith(suffix):
        return None
    digits = name[:OFFSET_DIGITS]
    if not (digits.isascii() and digits.isdigit()):
        return None
    offset = int(digits)
    return offset if offset <= LARGEST_OFFSET else None


def shared_name(name: str) -> str:
    """The name under which the first of several processes has what another has in a file of this
    name: `clients.json` for `clients.json.1`."""
    first, _, number = name.rpartition(".")
    of_each = (CLIENTS, CLOCK)
    return first if first in of_each and number.isascii() and number.isdigit() else name


def partition_directory(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def partition_of(directory: str) -> tuple[str, int] | None:
    """Topic and partition of a folder's name, or None. The last hyphen divides."""
    topic, hyphen, digits = directory.rpartition("-")
    if not hyphen or not topic or not (digits.isascii() and digits.isdigit()):
        return None
    return topic, int(digits)


def deleted_directory(topic: str, partition: int, unique: str) -> str:
    """The name of a partition that waits to be removed; `unique` is 32 hexadecimal digits.

    The topic is cut so that the whole stays a legal file name.
    """
    suffix = f"-{partition}.{unique}{DELETE_SUFFIX}"
    return topic[: FILE_NAME_MAX - len(suffix)] + suffix


def is_deleted_directory(name: str) -> bool:
    head, dot, tail = name.rpartition(".")
    unique = tail[: -len(DELETE_SUFFIX)]
    return (
        bool(dot)
        and tail.endswith(DELETE_SUFFIX)
        and len(unique) == 32
        and all(digit in "0123456789abcdef" for digit in unique)
        and partition_of(head) is not None
    )
