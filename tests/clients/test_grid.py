"""Every client reads what every client wrote, from 0.8 to the newest, on the same topic."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from protocol.records.walk import walk
from tests.clients.available import MARKS, end_of_test
from tests.clients.drivers.driver import CODECS, KEEP_FOR_EVER
from tests.clients.grid import Grid, as_seen, difference, keep, kept_rows
from tests.clients.grid_clients import BY_KEY, GRID_CLIENTS
from tests.clients.records import some_records
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from tests.clients.conftest import OutsideServer
    from tests.clients.grid_clients import GridDrivers
    from tests.support.server_process import ServerProcess

# The first run on a machine fetches every client.
pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

APACHE = os.environ.get("TEST_SERVER") == "kafka"

#: Who writes to topics in an old format: one client for each format and each way to compress.
WRITERS_TO_OLD_FORMATS = (
    "kafka-python-0.9.5",
    "kafka-python-1.4.7",
    "confluent-kafka",
    "java-0.8.2",
    "java-0.10.2",
    "java-4",
)

#: What the programs of the oldest readers fetch of a partition at a time, and no more.
SMALL_FETCH_BYTES = 1 << 16

#: A few times as much.
LARGE_BATCH_RECORDS = 600

WRITERS = [
    pytest.param(client.key, id=client.key, marks=MARKS[client.runtime])
    for client in GRID_CLIENTS
    if client.writes
]

READERS = [
    pytest.param(client.key, id=client.key, marks=MARKS[client.runtime])
    for client in GRID_CLIENTS
    if client.reads
]

SMALL_FETCHES = [
    pytest.param(client.key, codec, id=f"{client.key}-{codec}", marks=MARKS[client.runtime])
    for client in GRID_CLIENTS
    if client.reads and client.fetch_version <= 3
    for codec in CODECS
    if codec in (*client.reads, "zstd")
]


@pytest.fixture(scope="module")
def grid(grid_drivers: GridDrivers, broker: ServerProcess | OutsideServer) -> Grid:
    return Grid(grid_drivers, broker.bootstrap, apache=APACHE)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_client_writes_in_every_codec_it_has(writer: str, grid: Grid) -> None:
    require(grid, writer)

    grid.written(BY_KEY[writer], 2)

    failed = grid.failures(writer=writer)
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("reader", READERS)
def test_a_client_reads_what_every_client_wrote(reader: str, grid: Grid) -> None:
    require(grid, reader)

    for client in GRID_CLIENTS:
        if client.writes:
            read(grid, reader, client.key, 2)

    failed = grid.failures(reader=reader)
    assert not failed, "\n".join(failed)


@pytest.mark.skipif(APACHE, reason="Apache Kafka 3.9 writes format 2 only")
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("record_format", [1, 0])
def test_a_client_reads_topics_in_an_older_format(
    reader: str, record_format: int, grid: Grid
) -> None:
    require(grid, reader)

    for writer in WRITERS_TO_OLD_FORMATS:
        read(grid, reader, writer, record_format)

    failed = grid.failures(reader=reader)
    for writer in WRITERS_TO_OLD_FORMATS:
        failed += grid.failures(writer=writer)
    assert not failed, "\n".join(failed)


@pytest.mark.skipif(APACHE, reason="a client of Apache Kafka never gets past such a batch")
@pytest.mark.parametrize(("reader", "codec"), SMALL_FETCHES)
def test_a_batch_larger_than_a_client_fetches_at_a_time_is_read(
    reader: str, codec: str, grid: Grid, broker: ServerProcess | OutsideServer, topic: str
) -> None:
    require(grid, reader)
    old, new = BY_KEY[reader], BY_KEY["confluent-kafka"]
    chance = random.Random(1)
    written = [
        record._replace(value=chance.randbytes(500), headers=())
        for record in some_records(LARGE_BATCH_RECORDS, new.abilities, partitions=1)
    ]
    grid.drivers.create_topic(broker.bootstrap, topic, KEEP_FOR_EVER)
    grid.drivers.write(new, broker.bootstrap, topic, written, codec=codec)
    with Caller(broker.host, broker.port) as caller, caller.leader_of(topic) as leader:
        batches = walk(leader.fetch(topic).records)
        assert max(size for _, size, _ in batches) > SMALL_FETCH_BYTES

    stored = grid.drivers.read(old, broker.bootstrap, topic, {0: len(written)})

    wanted = [as_seen(record, new, old, 2) for record in written]
    assert difference(wanted, stored, 0) == ""


@pytest.mark.skipif(APACHE, reason="docs/clients.md is about our broker")
def test_the_documented_grid_is_the_one_found(grid: Grid) -> None:
    if os.environ.get("TEST_GRID_KEEP"):
        keep(grid)
    kept = kept_rows()

    for row, outcomes in grid.rows.items():
        found = {client: outcome.text for client, outcome in outcomes.items()}
        assert found.items() <= kept.get(row, {}).items(), f"{row}: make clients-grid"
    assert {row.split()[1] for row in kept} == {
        client.key for client in GRID_CLIENTS if client.writes
    }


def require(grid: Grid, key: str) -> None:
    """End the test if this machine lacks the client."""
    try:
        grid.drivers.get(BY_KEY[key])
    except NotAvailable as reason:
        end_of_test(BY_KEY[key].runtime, f"{key}: {reason}")


def read(grid: Grid, reader: str, writer: str, record_format: int) -> None:
    """Fill the cells of this pair; those of a writer that this machine lacks stay empty."""
    try:
        grid.read(BY_KEY[reader], BY_KEY[writer], record_format)
    except NotAvailable:
        require(grid, reader)
