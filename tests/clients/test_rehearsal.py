"""Old clients on brokers that answer as a release: of their age, and of today."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from config.formats import NAMES
from tests.clients.available import end_of_test
from tests.clients.drivers.driver import Refused
from tests.clients.grid_clients import BY_KEY
from tests.clients.records import FIRST_TIMESTAMP_MS, Record
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.grid_clients import GridDrivers

pytestmark = [pytest.mark.clients, pytest.mark.long]

TOPIC = "t"
ADMIN = "administrator"
RECORDS = [Record(0, FIRST_TIMESTAMP_MS + n, b"k", b"v%d" % n) for n in range(3)]


def broker_of(release: str, folder: Path) -> BrokerProcess:
    """A broker that answers as the release, but for one who makes the topic."""
    settings = {"as.version": release, "as.version.client.ids": f"{ADMIN}:{list(NAMES)[-1]}"}
    return BrokerProcess(folder / "data", settings=settings)


def talk(drivers: GridDrivers, key: str, broker: BrokerProcess) -> list[bytes | None]:
    """The values of the records that the client has written and read. Raises `Refused`."""
    client, bootstrap = BY_KEY[key], broker.bootstrap
    try:
        drivers.get(client)
    except NotAvailable as reason:
        end_of_test(client.runtime, str(reason))
    with Caller(broker.host, broker.port, client_id=ADMIN) as admin:
        admin.create_topic(TOPIC)
    drivers.write(client, bootstrap, TOPIC, RECORDS, codec="gzip")
    stored = drivers.read(client, bootstrap, TOPIC, {0: len(RECORDS)})
    return [record.value for _, record in stored[0]]


@pytest.mark.parametrize(
    ("client", "release"),
    [
        ("kafka-python-0.9.5", "0.8.2"),
        ("kafka-python-0.9.5", "0.9"),
        ("kafka-python-1.4.7", "0.9"),
        ("kafka-python-1.4.7", "0.10.2"),
        ("kafka-python-1.4.7", "4.1"),
        pytest.param("java-0.9.0", "0.9", marks=pytest.mark.java),
    ],
)
def test_an_old_client_is_served_by_the_releases_that_know_its_versions(
    grid_drivers: GridDrivers, client: str, release: str, tmp_path: Path
) -> None:
    with broker_of(release, tmp_path) as broker:
        assert talk(grid_drivers, client, broker) == [record.value for record in RECORDS]


def test_a_client_that_is_too_old_for_kafka_4_is_refused_and_the_log_says_by_which_request(
    grid_drivers: GridDrivers, tmp_path: Path
) -> None:
    with broker_of("4.1", tmp_path) as broker:
        with pytest.raises(Refused):
            talk(grid_drivers, "kafka-python-0.9.5", broker)
        assert broker.run is not None
        run = broker.run
        assert broker.stop() == 0
    refused = r"connection closed.*Produce v0 is not served by Apache Kafka 4\.1.*kafka-python"
    assert re.search(refused, run.output())
