"""The page of the census: which clients would stop working on Kafka 4.0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.caller import Caller

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess
    from tests.support.console import ConsoleClient

SCRIPT = '<script>alert("id")</script>'


def test_a_stranger_sees_which_clients_stop_working_on_kafka_4(
    console: ConsoleClient, broker: BrokerProcess
) -> None:
    request = ListOffsetsRequest(replica_id=-1, topics=[])
    for client_id, version in (("ages-ago", 0), ("of-today", 7), (SCRIPT, 0)):
        with Caller(broker.host, broker.port, client_id=client_id) as caller:
            caller.call(request, version=version)
    page = console.get("/clients")
    assert page.status == 200, page.text
    assert "2 of" in page.text
    assert "clients would stop working on Kafka 4.0" in page.text
    by_name = {row[0]: row for row in page.rows if len(row) > 7}
    assert "fails ListOffsets v0: the connection is closed" in by_name["ages-ago"]
    assert by_name["of-today"][-1] == "fine"
    assert "<script>" not in page.html
    assert SCRIPT in by_name
    names = [row[0] for row in page.rows[1:] if len(row) > 7]
    assert set(names[:2]) == {"ages-ago", SCRIPT}


def test_a_filter_finds_clients_by_what_they_are(
    console: ConsoleClient, broker: BrokerProcess
) -> None:
    with Caller(broker.host, broker.port, client_id="sought") as caller:
        caller.call(MetadataRequest(topics=[]), version=12)
    rows = console.get("/clients?q=SOUGHT").rows
    assert [row[0] for row in rows[1:] if len(row) > 7] == ["sought"]
