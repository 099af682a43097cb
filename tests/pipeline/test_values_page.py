"""docs/values.md, typed from top to bottom: each command does what the page says."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipeline import cli
from protocol.records.builder import build_batch
from tests.pipeline import values_topics as topics
from tests.pipeline.transactional_history import consumed
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.caller import NOW_MS, Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.schema_registry import SchemaRegistry

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("with_pandas"),
]
PAGE = (CHECKOUT / "docs" / "values.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^triglot pipeline (.+)$", PAGE, re.MULTILINE)
TRIP = """syntax = "proto3"; package taxi;
message Place { string name = 1; }
message Trip { int64 id = 1; Place to = 2; }
"""
USER = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}]}
LATER = 999
"""A schema id that is registered once the page has come to reading what it was missing for."""


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """The page's topics are called as anybody's are."""
    with BrokerProcess(tmp_path / "data", settings={"log.retention.ms": "-1"}) as process:
        yield process


class Reader:
    """A reader of the page in a folder of his own."""

    def __init__(self, broker: BrokerProcess, registry: SchemaRegistry) -> None:
        self.broker = broker
        self.registry = registry

    def prepare(self) -> None:
        """The topics and files that the page takes for granted."""
        order = topics.serialize(self.registry, "orders", topics.ORDER_1, topics.order(1))
        unknown = b"\0" + LATER.to_bytes(4, "big") + order[5:]
        content: dict[str, list[tuple[bytes | None, bytes | None]]] = {
            "orders": [(b"k", order), (b"k", b"no order")],
            "clicks": [(None, b'{"id": 7, "name": "start"}')],
            "users": [(b"\x02", b"\x04"), (b"\x02", None)],
            "trips": [(None, b"\x08\x07\x12\x03\x0a\x01x")],
            "payments": [(b"k", order), (b"late", unknown)],
        }
        with Caller(self.broker.host, self.broker.port) as caller:
            for name, pairs in content.items():
                caller.create_topic(name, 1)
                caller.produce(name, build_batch([(NOW_MS, *pair, ()) for pair in pairs]))

    def type(self, command: str) -> int:
        words = command.replace("localhost:9092", self.broker.bootstrap)
        return cli.main(shlex.split(words.replace("http://localhost:8081", self.registry.url)))

    def values(self, topic: str) -> list[bytes | None]:
        found = consumed(self.broker.bootstrap, topic, "read_committed")
        return [message.value() for message in found]


def test_each_command_of_the_page_does_what_the_page_says(
    own_broker: BrokerProcess,
    registry: SchemaRegistry,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks.ddl").write_text("id BIGINT NOT NULL, name STRING")
    (tmp_path / "trip.proto").write_text(TRIP)
    for name in ("user", "user-key"):
        (tmp_path / f"{name}.avsc").write_text(json.dumps(USER))
    reader = Reader(own_broker, registry)
    reader.prepare()
    for command in COMMANDS:
        if "payments-mended" in command:
            registry.schemas[LATER] = registry.schemas[1]
        assert reader.type(command) == 0, f"{command}: {capsys.readouterr().err}"
    told = capsys.readouterr().out
    assert "ok    Spark's Avro    decodes an int: 1,000" in told
    assert f"ok    registry        {registry.url} answers" in told
    lake = tmp_path / "lake"
    assert [row["id"] for row in topics.rows(lake / "orders")] == [1]
    assert reader.values("orders.dead") == [b"no order"]
    assert [(row["id"], row["name"]) for row in topics.rows(lake / "clicks")] == [(7, "start")]
    assert [(row["id"], row["to"]) for row in topics.rows(lake / "trips")] == [(7, {"name": "x"})]
    assert [(row["_key"], row["id"], row["_tombstone"]) for row in topics.rows(lake / "users")] == [
        ({"id": 1}, 2, False),
        ({"id": 1}, None, True),
    ]
    (late,) = consumed(own_broker.bootstrap, "payments.dead", "read_committed")
    assert [row["id"] for row in topics.rows(lake / "payments-mended")] == [1]
    assert reader.values("payments.again") == [late.value()]
    headers = dict(late.headers() or ())
    assert headers["__triglot.errors.offset"] == b"1"
    assert headers["__triglot.errors.message"] == (
        b"the value has schema id 999, which the registry has not got"
    )
    for name in headers:
        assert name in PAGE


def test_what_other_jobs_make_of_columns_is_as_the_page_says(
    broker: BrokerProcess,
    registry: SchemaRegistry,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, folder = "values-for-other-jobs", tmp_path / "lake"
    archive = topics.archive_of(broker, registry, topic, folder, table="delta")
    for number in range(2):
        value = topics.serialize(registry, topic, topics.ORDER_1, topics.order(number))
        topics.produce(broker, topic, value)
        archive.run(spark)

    def told(*words: Any) -> tuple[int, str]:
        code = cli.main(list(map(str, words)))
        output = capsys.readouterr()
        return code, output.out + output.err

    code, line = told("replay", "--from", folder, "--to", broker.bootstrap)
    assert (code, line.count("\n")) == (5, 1)
    assert "has values as columns, and not the bytes" in line
    code, line = told("audit", "--from", broker.bootstrap, "--against-table", folder)
    assert (code, line.count("\n")) == (5, 1)
    assert "is no table of newest values" in line
    assert told("maintain", "--from", folder)[0] == 0
    table = DeltaTable(folder)
    assert len(table.file_uris()) == 1
    assert sorted(pa.table(table.scan())["id"].to_pylist()) == [0, 1]
