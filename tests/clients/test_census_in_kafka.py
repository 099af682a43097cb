"""The verdict of the census is what happens in Apache Kafka 4: every client of the grid, and those
in Go."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import MARKS, end_of_test
from tests.clients.grid_clients import BY_KEY
from tests.clients.test_census import CLIENTS, RELEASE, are_fine, driver_of, fate, foretold
from tests.clients.test_rehearsal_beside_kafka import KRAFT
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.grid_clients import GridDrivers

pytestmark = [pytest.mark.clients, pytest.mark.java, pytest.mark.long]


GO = ("franz-go", "kafka-go", "sarama")
TRIED = CLIENTS if os.environ.get("TEST_CENSUS_ALL") else (*BY_KEY, *GO)


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=MARKS[CLIENTS[key].runtime]) for key in TRIED]
)
def test_the_verdict_on_a_client_is_what_becomes_of_it_in_kafka(
    grid_drivers: GridDrivers, key: str, tmp_path: Path
) -> None:
    client = driver_of(grid_drivers, key)
    verdicts = foretold(grid_drivers, client, tmp_path / "here" / "data")
    try:
        kafka = KafkaProcess(tmp_path / "kafka", release=KRAFT[RELEASE])
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with kafka:
        assert fate(grid_drivers, client, kafka) == are_fine(verdicts)
