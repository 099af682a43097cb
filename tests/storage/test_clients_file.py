"""`clients.json`: written whole, read within bounds, and refused with the reason."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from protocol.client_usage import ClientIdentity, ClientUsage
from storage.clients_file import CLIENTS_MAX, decode_clients, encode_clients, read_clients
from storage.disk import DiskFilesystem
from storage.errors import MalformedFile

if TYPE_CHECKING:
    from pathlib import Path


def usage(client_id: str) -> ClientUsage:
    return ClientUsage(ClientIdentity("127.0.0.1", client_id), 7)


def test_what_was_written_is_read_in_its_order() -> None:
    rows = [usage(name).to_json() for name in ("b", "a", "ä")]

    found = decode_clients(encode_clients(rows, 5), "clients.json")

    assert [one.to_json() for one in found.clients] == rows
    assert found.forgotten == 5


def test_of_too_many_clients_the_last_are_kept_and_the_others_counted() -> None:
    rows = [usage(str(number)).to_json() for number in range(CLIENTS_MAX + 3)]

    found = decode_clients(encode_clients(rows, 5), "clients.json")

    assert (len(found.clients), found.forgotten) == (CLIENTS_MAX, 8)
    assert found.clients[0].identity.client_id == "3"


def test_a_file_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "clients.json"
    path.touch()
    os.truncate(path, 1 << 40)

    with pytest.raises(MalformedFile, match="1099511627776 bytes, wanted at most"):
        read_clients(DiskFilesystem(), str(path))


WHOLE = encode_clients([usage("a").to_json()], 0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        WHOLE[:40],
        b"\xff" + WHOLE,
        b"[" * 100_000,
        b"[]",
        json.dumps({"version": 2, "forgotten": 0, "clients": []}).encode(),
        json.dumps({"version": 1, "forgotten": 0, "clients": {}}).encode(),
        json.dumps({"version": 1, "forgotten": "0", "clients": []}).encode(),
        json.dumps({"version": 1, "forgotten": 0, "clients": [{}]}).encode(),
    ],
)
def test_what_is_no_such_file_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedFile, match=r"clients\.json"):
        decode_clients(data, "clients.json")
