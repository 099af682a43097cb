"""The table of APIs: complete, true, and cheap to import."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from protocol.registry import APIS, NEVER_FLEXIBLE, Api

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).parent / "schemas" / "api-versions.csv"

# Of what only brokers ask of each other: declared for the metadata log, never offered.
ENVELOPE, FETCH_SNAPSHOT = 58, 59
DECLARED_UNOFFERED = {ENVELOPE: "0-0", FETCH_SNAPSHOT: "0-1"}
WITHOUT_A_SWITCH = {22: "0-6"}
"""Kafka offers InitProducerId 6 where versions that are not stable yet are switched on."""


def rows() -> dict[int, dict[str, str]]:
    with TABLE.open(newline="") as lines:
        return {int(row["key"]): row for row in csv.DictReader(lines)}


def offered() -> dict[int, str]:
    advertised = {key: row["advertise"] for key, row in rows().items() if row["advertise"]}
    return advertised | DECLARED_UNOFFERED | WITHOUT_A_SWITCH


def each_api() -> list[object]:
    return [pytest.param(api, id=api.name) for api in APIS.values()]


def test_every_api_of_the_table_is_declared_in_the_versions_of_the_table() -> None:
    assert {key: f"{api.min_version}-{api.max_version}" for key, api in APIS.items()} == offered()


def test_names_and_first_flexible_versions_are_those_of_the_table() -> None:
    for key, api in APIS.items():
        row = rows()[key]
        first_flexible = row["first_flexible_version"]
        assert api.name == row["name"]
        assert api.first_flexible == (
            NEVER_FLEXIBLE if first_flexible == "none" else int(first_flexible)
        )


def test_the_table_is_in_the_order_of_keys() -> None:
    assert list(APIS) == sorted(APIS)


@pytest.mark.parametrize("api", each_api())
def test_an_api_has_a_request_a_response_and_a_refusal(api: Api) -> None:
    for message in (api.request, api.response):
        assert message.key == api.key
        assert message.min_version == api.min_version
        assert message.max_version >= api.max_version
        # For 76 to 79 version 0 is flexible, but not declared.
        assert message.first_flexible == max(api.first_flexible, api.min_version)
    assert api.request.__name__ == f"{api.name}Request"
    assert api.response.__name__ == f"{api.name}Response"
    assert isinstance(api.messages, ModuleType)
    assert api.refused.__module__ == f"protocol.messages.{api.module}"


def test_whatever_is_declared_of_a_request_is_offered() -> None:
    assert [a.name for a in APIS.values() if a.request.max_version != a.max_version] == []


def test_every_message_file_belongs_to_an_api() -> None:
    files = {path.stem for path in (ROOT / "protocol" / "messages").glob("*.py")}
    assert files - {"__init__"} == {api.module for api in APIS.values()}


def test_an_api_serves_the_versions_of_its_range() -> None:
    share_fetch = APIS[78]
    assert (share_fetch.min_version, share_fetch.max_version) == (1, 2)


def test_importing_the_table_imports_no_message() -> None:
    program = (
        "import sys, protocol.registry as r; r.APIS[12].request; "
        "print(*sorted(m for m in sys.modules if m.startswith('protocol.messages.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["protocol.messages.heartbeat"]
