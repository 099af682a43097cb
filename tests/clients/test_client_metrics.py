"""Real clients push their metrics, as they do by default (KIP-714), and the page shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.records import FIRST_TIMESTAMP_MS, Record
from tests.support.broker_changes import SET, alter
from tests.support.caller import Caller
from tests.support.scraped import scrape
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.clients.drivers.program_driver import ProgramDriver
    from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.java]

CLIENT_METRICS = 16
SENT = "org_apache_kafka_producer_record_send_total"


@pytest.mark.parametrize("client", ["java-3.9", "java-4"], indirect=True)
def test_a_producer_tells_what_it_has_sent(
    client: ProgramDriver, new_server: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    port = free_port()
    server = new_server(**{"metrics.port": str(port)})
    with Caller(server.host, server.port) as caller:
        caller.create_topic("orders", retention_ms="-1")
        subscription = (("metrics", SET, "org.apache.kafka.producer."), ("interval.ms", SET, "200"))
        asked = alter(caller, *subscription, name="all", resource_type=CLIENT_METRICS)
        assert asked.error_code == 0
    records = [Record(0, FIRST_TIMESTAMP_MS, None, b"%d" % n) for n in range(100)]
    file = tmp_path / "records"
    file.write_text("".join(record.to_line() + "\n" for record in records))

    # Its first push is due 100 to 300 ms after it was asked, and one that is closed before then
    # may tell nothing.
    client.program.call(
        "produce",
        bootstrap=server.bootstrap,
        topic="orders",
        file=file,
        codec="none",
        idempotent="true",
        **{"open-ms": 3_000},
    )

    page = scrape(port, "/client-metrics").body
    (row,) = [line for line in page.splitlines() if line.startswith(SENT)]
    assert f"# TYPE {SENT} counter" in page
    assert 'client_software_name="apache-kafka-java",client_software_version="' in row
    assert float(row.rpartition(" ")[2]) == len(records)
