"""What docs/{behaviour,operations,retention-that-waits}.md type of Kafka's own tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.style.pages import commands
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable
from tests.support.kafka_release import KAFKA_3_9
from tests.support.kafka_tools import run_tool

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java]

PAGES = ("docs/behaviour.md", "docs/operations.md", "docs/retention-that-waits.md")
TOOLS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-client-metrics.sh": "org.apache.kafka.tools.ClientMetricsCommand",
}
"""The class that each script starts."""


def test_kafkas_tools_do_what_the_pages_type(tmp_path: Path) -> None:
    typed = [one for page in PAGES for one in commands(page) if one.program in TOOLS]
    assert len(typed) == 7
    with BrokerProcess(tmp_path / "data") as broker:
        with Caller(broker.host, broker.port) as caller:
            caller.create_topic("orders")
        told = ""
        for command in typed:
            there = [broker.bootstrap if word.endswith(":9092") else word for word in command.words]
            try:
                ended = run_tool(KAFKA_3_9, TOOLS[command.program], *there, folder=tmp_path)
            except NotAvailable as reason:
                end_of_test("java", str(reason))
            assert ended.code == 0, (command, ended.out, ended.err)
            told += ended.out

    assert "producer_byte_rate=1.0E7" in told or "producer_byte_rate=10000000" in told
