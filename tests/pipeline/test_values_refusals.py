"""What ends an archive of values, as typed: one line, an exit code, nothing published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipeline import cli
from pipeline.errors import EXIT_CODES, Failure, Refused, Undecodable, Unreachable, WrongUse
from tests.pipeline import protobuf_topics as messages
from tests.pipeline import values_topics as topics
from tests.support.caller import Caller

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess
    from tests.support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.usefixtures("with_pandas")
Captured = pytest.CaptureFixture[str]
QUICK = "retries.wait.ms = 1\nretries.max.wait.ms = 1\ntimeout = 5\n"


class Typed:
    """Runs of `archive` for a topic, and what each said."""

    def __init__(self, broker: BrokerProcess, topic: str, folder: Path, capsys: Captured) -> None:
        self.folder = folder
        self._words = [
            "archive",
            "--from",
            broker.bootstrap,
            "--topic",
            topic,
            "--to",
            f"{folder}/lake",
        ]
        self._capsys = capsys
        (folder / "quick").write_text(QUICK)
        with Caller(broker.host, broker.port) as caller:
            caller.create_topic(topic, 1)

    def ends(self, *words: Any, by: type[Failure], told: str) -> None:
        code = cli.main([*self._words, *map(str, words)])
        line = self._capsys.readouterr().err.strip().splitlines()[-1]
        assert (code, told in line) == (EXIT_CODES[by], True), line
        assert not list(self.folder.glob("lake/*.parquet"))


def test_what_can_be_known_before_spark_starts_ends_there(
    broker: BrokerProcess, registry: SchemaRegistry, tmp_path: Path, capsys: Captured
) -> None:
    typed = Typed(broker, "refused-at-once", tmp_path, capsys)
    quick = ("--registry-config", tmp_path / "quick")
    avro = ("--value", "avro", *quick, "--registry")
    typed.ends(*avro, "http://127.0.0.1:1", by=Unreachable, told="does not answer")
    typed.ends(*avro, f"{registry.url}/no", by=WrongUse, told="is no schema registry")
    registry.failing = (503, b'{"error_code": 50003, "message": "busy"}')
    try:
        typed.ends(*avro, registry.url, by=Unreachable, told="busy, asked 4 times")
    finally:
        registry.failing = None
    proto, wrong = tmp_path / "order.proto", tmp_path / "order.desc"
    proto.write_text(messages.ORDER_1)
    wrong.write_bytes(b"\xff")
    of_file = ("--value", "protobuf", "--value-schema")
    typed.ends(*of_file, wrong, by=WrongUse, told="is neither descriptors")
    typed.ends(
        *of_file, proto, "--value-message", "shop.Orders", by=Refused, told="no message shop.Orders"
    )
    proto.write_text("no schema")
    typed.ends(*of_file, proto, by=Refused, told=f"{proto} is no schema of Protocol Buffers")
    typed.ends("--value-message", "x", by=WrongUse, told="--value-message needs the format")


@pytest.mark.long
def test_what_is_found_in_records_ends_the_run_before_anything_is_published(
    broker: BrokerProcess,
    registry: SchemaRegistry,
    spark: SparkSession,
    tmp_path: Path,
    capsys: Captured,
) -> None:
    order = topics.serialize(registry, "refused", topics.ORDER_1, topics.order(1))
    schema_id = int.from_bytes(order[1:5], "big")
    made = messages.serialize(
        registry, "refused-proto", messages.classes(messages.ORDER_1)["shop.Order"](id=1)
    )
    found: dict[str, tuple[bytes, type[Failure], str]] = {
        "unknown": (b"\0\0\0\x03\xe7" + order[5:], Undecodable, "has schema id 999, which the reg"),
        "other": (order[:5] + b"\xff" * 9, Undecodable, f"as AVRO by schema {schema_id}"),
        "kind": (made, Refused, "is PROTOBUF, and the value was to be AVRO: give its format"),
    }
    for name, (value, by, told) in found.items():
        (tmp_path / name).mkdir()
        topic = f"refused-{name}"
        typed = Typed(broker, topic, tmp_path / name, capsys)
        topics.produce(broker, topic, value)
        typed.ends("--value", "avro", "--registry", registry.url, by=by, told=told)
