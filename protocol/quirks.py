"""Faults of released clients that are allowed for, each declared once.

Two kinds: answers that a release misreads, and bytes that it sends behind the last field of a
request. A declaration may go when nobody runs the releases that it names.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

from protocol.eras import METADATA, OFFSET_FETCH

if TYPE_CHECKING:
    from collections.abc import Mapping

SOFTWARE_NAME = "triglot"
"""Of the clients of this house: its tools, its followers and its pipeline."""

LIST_GROUPS = 16
ALTER_USER_SCRAM_CREDENTIALS = 51

# Entries of format 0 and 1 in Fetch. From librdkafka 2.5.0 to 2.15.0 a consumer that fetches with
# v12 and later reads the lengths of key and value in them as compact ones. Keys and values are null
# then, and what follows in the answer is garbage, lost without an error, or asked for without end
# (librdkafka #5504, #5549). The clients that are built on it have the fault of the release in them.

MISREAD_SINCE = (2, 5, 0)
READ_RIGHT_SINCE = (2, 15, 1)

LAST_FETCH_READ_RIGHT = 11
"""Last version of Fetch that these releases read right. By using it they lose topic ids only."""

VERSION_IS_LIBRDKAFKAS = frozenset({"confluent-kafka-dotnet", "confluent-kafka-go", "librdkafka"})
"""Software names that come with the version of librdkafka. Clients for C++, PHP and Rust, and
node-rdkafka, leave name and version to librdkafka. Those for Python, JavaScript and Ruby add it to
a version of their own: `2.9.0-rdkafka-2.8.0`, `v1.4.0-librdkafka-2.11.0`."""

NOT_LIBRDKAFKA = frozenset({"apache-kafka-java", "kafka-python", "kgo", "sarama", SOFTWARE_NAME})
"""Software names of clients with code of their own, which was seen to read old entries right."""

_RELEASE = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_NAMED_RELEASE = re.compile(r"rdkafka-v?(\d+)\.(\d+)\.(\d+)")


class OldEntries(Enum):
    """The ways in which clients read entries of format 0 and 1 in answers to Fetch v12 and later.

    UNKNOWN is for programs around librdkafka that tell a name and a version of their own
    (ClickHouse is one), and for whatever nobody has looked at.
    """

    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "unknown"


def old_entries_read_by(software_name: str, software_version: str) -> OldEntries:
    """Known behaviour of a client that names itself like this in ApiVersions (KIP-511)."""
    if software_name in NOT_LIBRDKAFKA:
        return OldEntries.RIGHT
    if software_name in VERSION_IS_LIBRDKAFKAS:
        found = _RELEASE.match(software_version)
    else:
        found = _NAMED_RELEASE.search(software_version)
    if found is None:
        return OldEntries.UNKNOWN
    release = tuple(map(int, found.groups()))
    wrong = MISREAD_SINCE <= release < READ_RIGHT_SINCE
    return OldEntries.WRONG if wrong else OldEntries.RIGHT


# Bytes behind the last field. In two requests librdkafka writes a null array as four zeros where a
# flexible version has one (librdkafka #5049). So the flags behind it are read from zeros, which is
# what they nearly always are, and the last three bytes of the request are left.

TRAILING_BYTES: Mapping[tuple[int, int], frozenset[bytes]] = {
    # "All topics", for which the flag that may be set (to create topics) means nothing. Releases
    # 2.1 and 2.2 send v9, where the flag is read as a section with one tag; 2.3 to 2.10 send v12,
    # later ones v13.
    (METADATA, 9): frozenset({b"\0", b"\0\0\0"}),
    (METADATA, 12): frozenset({b"\0\0\0", b"\1\0\0"}),
    (METADATA, 13): frozenset({b"\0\0\0", b"\1\0\0"}),
    # All partitions of a group, and whether of stable offsets only: releases 2.0 to 2.2.
    (OFFSET_FETCH, 7): frozenset({b"\0\0\0", b"\0\1\0"}),
    # An empty tag section twice: release 2.0 in the first, all since 2.2 in the second.
    (LIST_GROUPS, 4): frozenset({b"\0"}),
    (ALTER_USER_SCRAM_CREDENTIALS, 0): frozenset({b"\0"}),
}
"""(API, version) -> what is known to follow the last field."""


def is_known_trailer(key: int, version: int, trailing: bytes) -> bool:
    """Whether some client is known to send this behind the last field of this request."""
    return trailing in TRAILING_BYTES.get((key, version), ())
