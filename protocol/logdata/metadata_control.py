"""Control records of `__cluster_metadata` and of its snapshots.

    key     int16 version 0, int16 type     2 LeaderChange, 3 SnapshotHeader, 4 SnapshotFooter,
                                            5 KRaftVersion, 6 KRaftVoters
    value   the message, which begins with its version (int16)

Whoever replays metadata steps over them; who reads the log or a snapshot as such needs them. What
0 and 1 are, the ends of transactions of ordinary topics, is in `protocol.records.markers`.
"""

from __future__ import annotations

from struct import Struct as Format

from protocol.errors import Malformed
from protocol.logdata.offsets import UnknownRecord
from protocol.schema import (
    ZERO_UUID,
    Struct,
    array,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)

_KEY = Format(">hh")
_VERSION = Format(">h")
KEY_VERSION = 0


class LeaderChangeMessage(Struct, versions="0-1", flexible="0+"):
    """A leader's first record in its epoch. 1 has the voters' directories (KIP-853)."""

    class Voter(Struct):
        voter_id: int = int32()
        voter_directory_id: bytes = uuid("1+", default=ZERO_UUID)

    version: int = int16(default=0)
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


class SnapshotHeaderRecord(Struct, versions="0", flexible="0+"):
    """The first record of a snapshot; the time is that of the last batch within it (ms)."""

    version: int = int16(default=0)
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Struct, versions="0", flexible="0+"):
    """The last record of a snapshot."""

    version: int = int16(default=0)


class KRaftVersionRecord(Struct, versions="0", flexible="0+"):
    """The level of `kraft.version`: 1 where voters may come and go (KIP-853)."""

    version: int = int16(default=0)
    k_raft_version: int = int16()


class VotersRecord(Struct, versions="0", flexible="0+"):
    """The voters, where `kraft.version` is 1."""

    class Voter(Struct):
        class Endpoint(Struct):
            name: str = string()
            host: str = string()
            port: int = uint16()

        class KRaftVersionFeature(Struct):
            min_supported_version: int = int16()
            max_supported_version: int = int16()

        voter_id: int = int32()
        voter_directory_id: bytes = uuid()
        endpoints: list[Endpoint] = array(Endpoint)
        k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)

    version: int = int16(default=0)
    voters: list[Voter] = array(Voter)


ControlRecord = (
    LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | VotersRecord
)

CONTROL_TYPES: dict[int, type[ControlRecord]] = {
    2: LeaderChangeMessage,
    3: SnapshotHeaderRecord,
    4: SnapshotFooterRecord,
    5: KRaftVersionRecord,
    6: VotersRecord,
}
_KEY_OF: dict[type[Struct], bytes] = {
    kind: _KEY.pack(KEY_VERSION, number) for number, kind in CONTROL_TYPES.items()
}


def encode_control(record: ControlRecord) -> tuple[bytes, bytes]:
    """Key and value, in the version that the record itself names.

    Raises ValueError for what the format cannot hold, naming the field.
    """
    if not type(record).valid_versions.holds(record.version):
        raise ValueError(f"{record!r}: versions are {type(record).valid_versions}")
    return _KEY_OF[type(record)], record.encode(record.version)


def decode_control(
    key: bytes | bytearray | memoryview | None, value: bytes | bytearray | memoryview | None
) -> ControlRecord:
    """The control record with this key and value. Raises UnknownRecord, saying what was found."""
    if key is None or value is None:
        raise UnknownRecord(f"a control record without a {'key' if key is None else 'value'}")
    if len(key) != _KEY.size:
        raise UnknownRecord(f"the key of a control record has {len(key)} bytes, not {_KEY.size}")
    version, number = _KEY.unpack(key)
    kind = CONTROL_TYPES.get(number)
    if version != KEY_VERSION or kind is None:
        raise UnknownRecord(
            f"a control record of type {number} with a key of version {version}; "
            f"known are types 2 to 6 with keys of version {KEY_VERSION}"
        )
    if len(value) < _VERSION.size:
        raise UnknownRecord(f"{kind.__name__} of {len(value)} bytes, its version alone has 2")
    message_version: int = _VERSION.unpack_from(value)[0]
    if not kind.valid_versions.holds(message_version):
        raise UnknownRecord(
            f"{kind.__name__} of version {message_version}, known are {kind.valid_versions}"
        )
    try:
        return kind.decode(message_version, value)
    except Malformed as error:
        raise UnknownRecord(f"{kind.__name__} v{message_version}: {error}") from None
