"""What a broker does with every version of every API: the smallest request of each, on a connection
of its own.

A body is made by the reference codec, as empty as the schema lets it be; of a version that nobody
has declared here none is sent, since nobody reads it.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.header import API_VERSIONS_KEY
from protocol.registry import APIS
from protocol.release_ranges import RANGES
from tests.protocol.reference_schema import schema_for
from tests.protocol.reference_values import Empty, Zero, tree_of
from tests.support.wire_client import ConnectionClosed, WireClient

if TYPE_CHECKING:
    from collections.abc import Iterable

CLIENT_ID = b"sweep"  # 0.9 refuses some requests without one
BETWEEN_BROKERS = range(4, 8)
"""LeaderAndIsr, StopReplica, UpdateMetadata and ControlledShutdown, of brokers with ZooKeeper."""
LAST_KEY = max(RANGES) + 1
HIGHEST = {
    key: max(
        int(change.rpartition("-")[2]) for change in changes.split(", ") if change[-4:] != "none"
    )
    for key, (_, changes) in RANGES.items()
}
"""The highest version that any release has of an API."""


class Answered(Empty):
    """Asks for an acknowledgement in Produce, and for any resource in DescribeAcls."""

    def integer(self, low: int, high: int) -> int:
        return 1


SOURCES: dict[int, Empty] = {
    0: Answered(),
    # Kafka 3.9 and 4 do not answer these at all when they ask for nothing.
    9: Zero(),
    24: Zero(),
    29: Answered(),
}


class Outcome(Enum):
    """What came of a request."""

    ANSWERED = "answered"
    CLOSED = "closed"
    UNSUPPORTED_VERSION = "answered with error 35, in version 0"


def every_version() -> Iterable[tuple[int, int]]:
    """Key and version of every API that any release has for clients, with one version more of each,
    and a key that none has."""
    for key in range(LAST_KEY + 1):
        if key in BETWEEN_BROKERS:
            continue
        for version in range(HIGHEST.get(key, 0) + 2):
            yield key, version


def outcome(host: str, port: int, key: int, version: int) -> Outcome:
    """What this broker does with this request."""
    with WireClient(host, port, timeout_s=float(__import__("os").environ.get("T", "60"))) as client:
        client.send_raw(_frame(key, version))
        try:
            answer = client.recv_frame()
        except ConnectionClosed:
            return Outcome.CLOSED
    code = struct.unpack_from(">h", answer, 4)[0]
    if key == API_VERSIONS_KEY and code == ErrorCode.UNSUPPORTED_VERSION:
        return Outcome.UNSUPPORTED_VERSION
    return Outcome.ANSWERED


def _frame(key: int, version: int) -> bytes:
    api = APIS.get(key)
    header = struct.pack(">hhih", key, version, 1, len(CLIENT_ID)) + CLIENT_ID
    body = b""
    if api is not None and version >= api.first_flexible:
        header += b"\0"
    if api is not None and api.min_version <= version <= api.max_version:
        schema = schema_for(api.name, "Request", version)
        body = schema.encode(version, tree_of(schema, version, SOURCES.get(key, Empty())))
    return struct.pack(">i", len(header) + len(body)) + header + body
