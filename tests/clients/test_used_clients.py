"""The most used releases of the last five years write and read topics of every format."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import MARKS, end_of_test
from tests.clients.grid import USED_FILE, Grid, keep, kept_rows
from tests.clients.grid_clients import BY_KEY
from tests.clients.used_clients import USED_CLIENTS
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from tests.clients.conftest import OutsideServer
    from tests.clients.grid_clients import GridDrivers
    from tests.support.server_process import ServerProcess

# The first run on a machine fetches every client.
pytestmark = [
    pytest.mark.long,
    pytest.mark.clients,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        os.environ.get("TEST_SERVER") == "kafka", reason="Apache Kafka 3.9 writes format 2 only"
    ),
]

USED = {client.key: client for client in USED_CLIENTS}
FORMATS = (2, 1, 0)

#: Who writes what they read, the oldest client and the newest; and who reads what they write.
OTHERS = ("java-0.8.2", "java-4")

CLIENTS = [
    pytest.param(client.key, id=client.key, marks=MARKS[client.runtime]) for client in USED_CLIENTS
]


@pytest.fixture(scope="module")
def grid(grid_drivers: GridDrivers, broker: ServerProcess | OutsideServer) -> Grid:
    return Grid(grid_drivers, broker.bootstrap, apache=False)


@pytest.mark.parametrize("key", CLIENTS)
@pytest.mark.parametrize("record_format", FORMATS)
def test_a_client_reads_topics_of_every_format(key: str, record_format: int, grid: Grid) -> None:
    require(grid, key)

    for writer in OTHERS:
        grid.read(USED[key], BY_KEY[writer], record_format)

    failed = [text for text in grid.failures(reader=key) if text.startswith(f"{record_format} ")]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("key", CLIENTS)
@pytest.mark.parametrize("record_format", FORMATS)
def test_what_a_client_writes_is_read(key: str, record_format: int, grid: Grid) -> None:
    require(grid, key)

    for reader in OTHERS:
        grid.read(BY_KEY[reader], USED[key], record_format)

    failed = [
        f"{row}, {client}: {outcome.text}"
        for row, outcomes in grid.rows.items()
        for client, outcome in outcomes.items()
        if row.split()[:2] == [str(record_format), key] and outcome.text != "ok"
        if not outcome.excused
    ]
    assert not failed, "\n".join(failed)


def test_the_documented_cells_are_those_found(grid: Grid) -> None:
    if os.environ.get("TEST_GRID_KEEP"):
        keep(grid, USED_CLIENTS, USED_FILE)
    kept = kept_rows(USED_FILE)

    for row, outcomes in grid.rows.items():
        found = {client: outcome.text for client, outcome in outcomes.items()}
        assert found.items() <= kept.get(row, {}).items(), f"{row}: make clients-grid"
    assert {row.split()[1] for row in kept} == {*USED, *OTHERS}


def require(grid: Grid, key: str) -> None:
    """End the test if this machine lacks the client, or one that it is tried against."""
    for client in (USED[key], *(BY_KEY[other] for other in OTHERS)):
        try:
            grid.drivers.get(client)
        except NotAvailable as reason:
            end_of_test(client.runtime, f"{client.key}: {reason}")
