"""The rows of text files: checkpoints, epochs, identities, JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.checkpoints import decode_rows, read_entries
from storage.clients_file import decode_clients
from storage.epochs import LeaderEpochs
from storage.errors import MalformedFile
from storage.identity import decode_partition_metadata, decode_properties, uuid_text
from storage.inspection.folder_names import QUORUM_STATE
from storage.inspection.text_files import read_small
from storage.layout import (
    CLEAN_SHUTDOWN,
    CLEAN_STATE,
    CLEANER_OFFSETS,
    CLIENTS,
    CLOCK,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECEIVE_TIMES,
    RECOVERY_POINTS,
    REPLACEMENT,
    SYNCED_POINTS,
    TAKEN_OVER,
    shared_name,
)
from storage.swaps import Replacement
from storage.trusted_time import ClockState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.client_usage import ClientUsage
    from storage.filesystem import Filesystem

    Fields = dict[str, str | int]

OFFSET_FILES = (
    RECOVERY_POINTS, SYNCED_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS, TAKEN_OVER,
)  # fmt: skip
JSON_FILES = (CLEAN_SHUTDOWN, CLEAN_STATE, QUORUM_STATE)


def text_rows(files: Filesystem, path: str, name: str) -> Iterator[tuple[str, Fields]]:
    """(what it is, fields) for each entry; a damaged file gives one row that says so."""
    try:
        data = read_small(files, path)
        yield from _rows(data, name)
    except MalformedFile as error:
        yield "damage", {"why": str(error)}


def _rows(data: bytes, name: str) -> Iterator[tuple[str, Fields]]:
    if name in OFFSET_FILES:
        for (topic, partition), noted in decode_rows(data, name):
            yield "checkpoint", {"topic": topic, "partition": partition, "offset": noted}
    elif name == LEADER_EPOCHS:
        for epoch, start in LeaderEpochs.decode(data, name).entries():
            yield "epoch", {"epoch": epoch, "start_offset": start}
    elif name == RECEIVE_TIMES:
        for offset, first, last in read_entries(data, name, field_count=3):
            yield (
                "received",
                {"from_offset": int(offset), "first_ms": int(first), "last_ms": int(last)},
            )
    elif shared_name(name) == CLIENTS:
        for usage in decode_clients(data, name).clients:
            yield "client", _client_fields(usage)
    elif shared_name(name) == CLOCK:
        yield "clock", ClockState.decode(data, name)._asdict()
    elif name == REPLACEMENT:
        found = Replacement.decode(data, name)
        sizes = " ".join(f"{suffix} {size}" for suffix, size in found.sizes.items())
        yield "replacement", {"new": sizes, "of": " ".join(map(str, found.sources))}
    elif name == META_PROPERTIES:
        for key, value in decode_properties(data, name).items():
            yield "property", {"key": key, "value": value}
    elif name == PARTITION_METADATA:
        yield "topic", {"topic_id": uuid_text(decode_partition_metadata(data, name))}
    elif name in JSON_FILES:
        yield from _json_rows(data, name)
    else:
        yield "unknown", {"size": len(data), "why": "no file of a data directory has such a name"}


def _json_rows(data: bytes, name: str) -> Iterator[tuple[str, Fields]]:
    import json

    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedFile(name, f"not JSON: {error}") from error
    if not isinstance(content, dict):
        raise MalformedFile(name, "wanted a JSON object")
    for key, value in content.items():
        yield "field", {"name": str(key), "value": json.dumps(value)}


def _client_fields(usage: ClientUsage) -> Fields:
    """The facts that fit into a row; `triglot clients` has all."""
    requests = usage.requests.items()
    return {
        **usage.identity._asdict(),
        "last_seen_ms": usage.last_ms,
        "requests": " ".join(f"{api} {','.join(map(str, found))}" for api, found in requests),
    }
