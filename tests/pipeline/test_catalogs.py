"""Iceberg tables in catalogs that are servers: Iceberg's own for REST, and Hive's metastore."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pytest

from pipeline.errors import Refused
from pipeline.jobs.maintain import Maintain
from pipeline.jobs.replay import Replay
from pipeline.tables.table import Catalog
from tests.clients.available import end_of_test
from tests.pipeline.archive_runs import archive_of, made
from tests.pipeline.mirroring import digest, stored
from tests.pipeline.test_object_store import run
from tests.pipeline.test_replay import run as replayed
from tests.pipeline.test_replay import without_spark
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable
from tests.support.hive_metastore import HiveMetastore
from tests.support.iceberg_rest import IcebergRest
from tests.support.server_process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

Server = TypeVar("Server", bound=ServerProcess)

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(600)]


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[IcebergRest]:
    yield from started(IcebergRest(tmp_path / "rest"))


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[HiveMetastore]:
    yield from started(HiveMetastore(tmp_path / "hive"))


def started(server: Server) -> Iterator[Server]:
    try:
        server.start()
    except NotAvailable as reason:
        end_of_test("spark", f"{type(server).__name__} is not to be had: {reason}")
    yield server
    if server.run is not None:
        server.kill()


def test_a_table_of_a_rest_catalog_is_added_to_maintained_and_replayed_and_waits_for_its_catalog(
    rest: IcebergRest, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog("shop.orders", "lake", {"type": "rest", "uri": rest.url})
    kept_through_its_catalogs_absence(rest, catalog, broker, tmp_path, monkeypatch)


def test_a_table_of_a_hive_metastore_is_added_to_maintained_and_replayed_and_waits_for_its_catalog(
    hive: HiveMetastore, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Hive 2 has no timestamps with a time zone.
    options = {"type": "hive", "uri": hive.uri, "hive.hive2-compatible": "true"}
    catalog = Catalog("shop.orders", "lake", options)
    kept_through_its_catalogs_absence(hive, catalog, broker, tmp_path, monkeypatch)


def kept_through_its_catalogs_absence(
    server: ServerProcess,
    catalog: Catalog,
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = str(tmp_path / "lake")
    with Caller(broker.host, broker.port) as caller:
        topic = made(caller, partitions=2)
        job = archive_of(broker, lake, topic, max_offsets=40, file_offsets=20)
        job = replace(job, table="iceberg", catalog=catalog)
        topic.write(2)
        run(job)
        assert Maintain(lake).run().details["files put together"] > 1
        topic.write(2, partition=1)
        server.kill()
        with pytest.raises(Refused, match=r"the Iceberg table shop\.orders: ") as refused:
            run(job)
        assert "\n" not in str(refused.value)
        with pytest.raises(Refused, match=r"cannot open the Iceberg table shop\.orders: "):
            Replay(lake, broker.bootstrap, rename="{topic}-again").check()
        server.start()
        run(job)

    # Where it is registered is noted in the archive.
    without_spark(monkeypatch)
    replayed(Replay(lake, broker.bootstrap, rename="{topic}-again"))
    for partition in range(2):
        wanted = stored(broker.bootstrap, topic.name, partition)
        assert digest(stored(broker.bootstrap, f"{topic.name}-again", partition)) == digest(wanted)
