"""Values by the schemas of a released registry: Apicurio, through its Confluent API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from pipeline.errors import Unreachable, WrongUse
from pipeline.values.registry import Registry
from tests.clients.available import end_of_test
from tests.pipeline import protobuf_topics as messages
from tests.pipeline import values_topics as topics
from tests.support.apicurio import Apicurio
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("with_pandas"),
]
QUICK = {"retries.wait.ms": "1", "retries.max.wait.ms": "1"}


@pytest.fixture
def apicurio(tmp_path: Path) -> Iterator[Apicurio]:
    made = Apicurio(tmp_path / "apicurio")
    try:
        made.start()
    except NotAvailable as reason:
        end_of_test("spark", f"Apicurio is not to be had: {reason}")
    yield made
    if made.run is not None:
        made.kill()


def test_an_archive_reads_values_by_what_is_registered_in_apicurio(
    apicurio: Apicurio, broker: BrokerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    topic = "values-by-apicurio"
    values = [
        *(topics.serialize(apicurio, topic, topics.ORDER_1, topics.order(n)) for n in range(3)),
        topics.serialize(apicurio, topic, topics.ORDER_2, topics.order(3, customer="c")),
    ]
    unknown = b"\0" + (4_000_000).to_bytes(4, "big") + values[0][5:]
    topics.produce(broker, topic, *values, unknown)
    archive = topics.archive_of(broker, apicurio, topic, tmp_path / "lake")
    archive.check()
    archive.run(spark)
    found = [(row["id"], row["customer"]) for row in topics.rows(tmp_path / "lake")]
    assert found == [(0, None), (1, None), (2, None), (3, "c")]
    (dead,) = topics.rows(tmp_path / "lake-dead")
    assert dead["reason"] == "the value has schema id 4000000, which the registry has not got"

    client = SchemaRegistryClient({"url": apicurio.url, "timeout": 30, "max.retries": 3})
    line = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
    client.register_schema("line", Schema(json.dumps(line), "AVRO"))
    whole = {"type": "record", "name": "Whole", "fields": [{"name": "line", "type": "Line"}]}
    refers = [SchemaReference("Line", "line", 1)]
    id_ = client.register_schema("whole", Schema(json.dumps(whole), "AVRO", refers))
    registered = Registry(apicurio.url, QUICK).schema(id_)
    assert registered is not None
    assert [json.loads(text) for text in registered.references] == [line]
    assert json.loads(registered.text) == whole

    made = messages.classes(messages.EVERYTHING)["shop.Everything"](text="a")
    data = messages.serialize(apicurio, "values-by-protobuf", made)
    client.register_schema("parts", Schema(messages.LINE, "PROTOBUF"))
    refers = [SchemaReference("shop/line.proto", "parts", 1)]
    id_ = client.register_schema("whole-proto", Schema(messages.WHOLE, "PROTOBUF", refers))
    whole = b"\0" + id_.to_bytes(4, "big") + b"\0\x0a\x03\x0a\x01a"
    for value, name, column in ((data, "text", "a"), (whole, "line", {"article": "a"})):
        id_ = int.from_bytes(value[1:5], "big")
        decoded = messages.decoder(apicurio, [id_]).decode(
            pa.array([value]), pa.array([id_], pa.int32())
        )
        assert decoded[0][name].as_py() == column

    for place in ("", "/apis/ccompat", "/apis/registry/v3", "/ui"):
        with pytest.raises(WrongUse, match="is no schema registry with Confluent's API"):
            Registry(apicurio.root + place, QUICK).check()
    apicurio.kill()
    with pytest.raises(Unreachable, match=rf"the registry {apicurio.url} does not answer"):
        Registry(apicurio.url, QUICK).check()
