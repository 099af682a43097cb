"""Data judged by rules on Spark: of topics, and of archives of every kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import RulesBroken, WrongUse
from pipeline.jobs.rule_audit import Judged, rule_audit
from pipeline.outcome import TIMES
from pipeline.reading.plan import Range
from pipeline.tables.table import Catalog
from protocol.records.builder import build_batch
from tests.pipeline.archive_runs import Runs, archive_of, made
from tests.support.caller import NOW_MS, Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.archive_runs import Topic
    from tests.support.broker_process import BrokerProcess

RULES = """\
[[rule]]
check = "json"

[[rule]]
check = "required"
field = "customer.id"

[[rule]]
check = "range"
field = "amount"
min = 0
max = 100

[[rule]]
check = "values"
field = "state"
values = ["new", "paid"]

[[rule]]
check = "unique"
field = "id"

[[rule]]
check = "unique"
key = true

[[rule]]
check = "gap"
seconds = 60

[[rule]]
name = "of no topic here"
check = "json"
topics = "other"
"""
MINUTE_MS = 60_000


def good(number: int, **more: Any) -> bytes:
    value = {"id": number, "customer": {"id": "c"}, "amount": 5.5, "state": "new", **more}
    return json.dumps(value).encode()


@pytest.fixture(scope="module")
def caller(broker: BrokerProcess) -> Iterator[Caller]:
    with Caller(broker.host, broker.port) as connected:
        yield connected


@pytest.fixture(scope="module")
def topic(caller: Caller) -> Topic:
    """Two partitions, ten seconds between records but for one gap, and one of each mistake."""
    topic = made(caller, partitions=2)
    values: list[bytes | None] = [good(number) for number in range(12)]
    values[1] = b"nonsense"  # no JSON, and so without the required field
    values[2] = good(2, customer={"id": None})
    values[3] = good(3, amount=-1)
    values[4] = good(4, amount="many")
    values[5] = good(5, state="gone")
    values[6] = good(0)  # an id that is there
    values[7] = None  # a tombstone has no fields
    values[8] = good(8, amount="7.5")  # a number, though in quotes
    records = [
        # From the tenth on all is seven minutes later, and two have the same key.
        (
            NOW_MS + 10_000 * number + (7 * MINUTE_MS if number >= 10 else 0),
            b"key %d" % min(number, 10),
            value,
            (),
        )
        for number, value in enumerate(values)
    ]
    topic.caller.produce(topic.name, build_batch(records[:9]), partition=0)
    topic.caller.produce(topic.name, build_batch(records[9:]), partition=0)
    topic.caller.produce(topic.name, build_batch([(NOW_MS, b"other", good(100), ())]), partition=1)
    return topic


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("rules") / "rules.toml"
    file.write_text(RULES)
    return str(file)


def expect_all(judged: Judged, topic: Topic) -> None:
    told = {breach.rule: breach for breach in judged.breaches}
    assert {breach.topic for breach in judged.breaches} == {topic.name}
    assert {name: breach.count for name, breach in told.items()} == {
        "json": 1,
        "required customer.id": 2,
        "range amount": 2,
        "values state": 1,
        "unique id": 1,
        "unique key": 1,
        "gap of partition": 1,
    }
    firsts = {name: (breach.examples[0][:2]) for name, breach in told.items()}
    assert firsts == {
        "json": (0, 1),
        "required customer.id": (0, 1),
        "range amount": (0, 3),
        "values state": (0, 5),
        "unique id": (0, 6),
        "unique key": (0, 11),
        "gap of partition": (0, 10),
    }
    assert told["range amount"].examples[0].found == "amount is '-1'"
    assert told["unique id"].examples[0].found == (
        "id is '0' in 2 records, the first at partition 0 offset 0"
    )
    assert told["gap of partition"].examples[0].found == "430.0 s without a record before it"
    assert isinstance(judged.failure(), RulesBroken)
    assert judged.records == 13


@pytest.mark.long
def test_what_breaks_a_rule_in_a_topic_is_counted_and_placed(
    broker: BrokerProcess, topic: Topic, rules: str, spark: SparkSession
) -> None:
    judged = rule_audit(rules, servers=broker.bootstrap, topics=[topic.name], spark=spark)
    expect_all(judged, topic)
    assert judged.offsets == 13
    told = json.loads(json.dumps(judged.as_json()))
    assert told["rules"] == 8
    assert told["breaches"][0] == {
        "rule": "json",
        "check": "json",
        "topic": topic.name,
        "count": 1,
        "examples": [
            {"partition": 0, "offset": 1, "found": "the value is no JSON: 'nonsense'"},
        ],
    }
    lines = judged.lines()
    assert lines[0] == f"{topic.name}: 1 record breaks rule 'json'"
    assert lines[1] == "  partition 0 offset 1: the value is no JSON: 'nonsense'"
    assert lines[-1].startswith("8 rules: audit: 13 records, ")

    records, sizes, gaps = judged.charts()
    assert [chart.axis for chart in (records, sizes, gaps)] == [TIMES] * 3
    assert sum(height for _, _, height in records.bars) == 13
    assert (records.bars[0][0], records.bars[-1][1] > NOW_MS + 8 * MINUTE_MS) == (NOW_MS, True)
    assert max(height for _, _, height in gaps.bars) == 430.0
    assert all(0 < height <= len(good(100, amount="many")) for _, _, height in sizes.bars)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("parquet", {"partition_by": "partition"}),
        ("delta", {"partition_by": "topic"}),
        ("iceberg", {"partition_by": "date"}),
    ],
    ids=["plain by partition", "delta by topic", "iceberg by date"],
)
def test_an_archive_is_judged_as_its_topic(
    broker: BrokerProcess,
    topic: Topic,
    rules: str,
    spark: SparkSession,
    tmp_path: Path,
    kind: str,
    more: dict[str, Any],
) -> None:
    folder = tmp_path / "the lake"
    if kind == "iceberg":
        uri = f"sqlite:///{tmp_path}/catalog.db"
        more = {**more, "catalog": Catalog("shop.orders", options={"type": "sql", "uri": uri})}
    job = archive_of(broker, folder, topic, table=kind, **more)
    Runs(job).micro_batch(0, Range(topic.name, 0, 0, 12), Range(topic.name, 1, 0, 1))
    judged = rule_audit(rules, archive=str(folder), spark=spark)
    expect_all(judged, topic)


@pytest.mark.long
def test_columns_of_an_archive_are_judged_and_one_that_is_not_there_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    owner = {"format": 2, "state": "s", "shape": "values", "table": "parquet"}
    (folder / "_archive.json").write_text(json.dumps(owner))
    rows: list[dict[str, Any]] = [
        {"id": 1, "amount": 5.0, "buyer": {"name": "a"}, "_tombstone": False},
        {"id": 1, "amount": -5.0, "buyer": {"name": None}, "_tombstone": False},
        {"id": None, "amount": None, "buyer": None, "_tombstone": True},
    ]
    kafkas: list[dict[str, Any]] = [
        {"_topic": "t", "_partition": 0, "_offset": number, "_timestamp": at, "_key": b"k"}
        for number, at in enumerate((NOW_MS, NOW_MS + 1, NOW_MS + 2))
    ]
    table = pa.Table.from_pylist([{**a, **b} for a, b in zip(rows, kafkas, strict=True)])
    at = table.schema.get_field_index("_timestamp")
    table = table.set_column(at, "_timestamp", table["_timestamp"].cast(pa.timestamp("ms", "UTC")))
    pq.write_table(table, folder / "a.parquet")
    file = tmp_path / "rules.toml"
    file.write_text(
        "[[rule]]\ncheck = 'required'\nfield = 'buyer.name'\n"
        "[[rule]]\ncheck = 'range'\nfield = 'amount'\nmin = 0\n"
        "[[rule]]\ncheck = 'unique'\nfield = 'id'\n"
    )
    judged = rule_audit(str(file), archive=str(folder), spark=spark)
    assert [(one.rule, one.count, one.examples[0].offset) for one in judged.breaches] == [
        ("required buyer.name", 1, 1),
        ("range amount", 1, 1),
        ("unique id", 1, 1),
    ]
    file.write_text("[[rule]]\ncheck = 'required'\nfield = 'buyer.nam'\n")
    with pytest.raises(WrongUse, match=r"no column 'buyer.nam': did you mean 'buyer.name'"):
        rule_audit(str(file), archive=str(folder), spark=spark)
