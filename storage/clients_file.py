"""`clients.json` in the data directory: the clients that a broker has seen, and how they used it.

JSON: `{"version": 1, "forgotten": n, "clients": [...]}` with an object for each client, whoever was
seen last at the end (docs/formats/clients.md). What if it is lost: clients that do not come again
are forgotten.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.client_usage import ClientIdentity, ClientUsage
from storage.errors import MalformedFile
from storage.layout import CLIENTS, shared_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.filesystem import Filesystem

VERSION = 1
CLIENTS_MAX = 1_000
"""Clients that are kept; beyond that those seen longest ago go."""


FILE_BYTES_MAX = 16 * 1024 * 1024
"""More than so many clients take, whatever their names are."""


class SeenClients(NamedTuple):
    """The content of the file: `forgotten` counts those that had to go."""

    clients: list[ClientUsage]
    forgotten: int


def encode_clients(clients: Iterable[dict[str, Any]], forgotten: int) -> bytes:
    """Of the objects that `ClientUsage.to_json` gives."""
    content = {"version": VERSION, "forgotten": forgotten, "clients": list(clients)}
    return (json.dumps(content, separators=(",", ":")) + "\n").encode()


def decode_clients(data: bytes, path: str) -> SeenClients:
    """Of more than `CLIENTS_MAX` clients the last ones. Raises MalformedFile."""
    try:
        found = json.loads(data)
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise ValueError(f"wanted an object of version {VERSION}")
        clients, forgotten = found.get("clients"), found.get("forgotten")
        if not isinstance(clients, list) or not isinstance(forgotten, int):
            raise ValueError("wanted a list 'clients' and a number 'forgotten'")
        kept = [ClientUsage.of_json(one) for one in clients[-CLIENTS_MAX:]]
    except (ValueError, RecursionError) as error:  # of what is no JSON, and no UTF-8, too
        raise MalformedFile(path, str(error)) from error
    return SeenClients(kept, forgotten + len(clients) - len(kept))


def read_all_clients(files: Filesystem, directory: str) -> SeenClients:
    """Those of a data directory, of all processes that have served it. Raises MalformedFile,
    OSError; FileNotFoundError where no client was seen yet."""
    names = sorted(one for one in files.list_dir(directory) if shared_name(one) == CLIENTS)
    return added_up([read_clients(files, f"{directory}/{name}") for name in names or [CLIENTS]])


def added_up(shares: Sequence[SeenClients]) -> SeenClients:
    """The clients of several processes, each once. The shares are used up."""
    if len(shares) == 1:
        return shares[0]
    found: dict[ClientIdentity, ClientUsage] = {}
    for usage in [usage for one in shares for usage in one.clients]:
        known = found.setdefault(usage.identity, usage)
        if known is not usage:
            known.add(usage)
    clients = sorted(found.values(), key=lambda usage: usage.last_ms)
    return SeenClients(clients, sum(one.forgotten for one in shares))


def read_clients(files: Filesystem, path: str) -> SeenClients:
    """Raises MalformedFile, OSError; FileNotFoundError where no client was seen yet."""
    size = files.size_of(path)
    if size > FILE_BYTES_MAX:
        raise MalformedFile(path, f"{size} bytes, wanted at most {FILE_BYTES_MAX}")
    return decode_clients(files.read_bytes(path), path)
