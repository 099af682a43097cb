"""The options of a writer, and the columns of a data frame."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline import errors
from pipeline.dataframes.sink_columns import check_columns
from pipeline.dataframes.writer import Writer
from pipeline.dataframes.writer_options import WriterOptions


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "kafka.bootstrap.servers' is missing"),
        ({"kafka.compression.typ": "lz4"}, "did you mean 'kafka.compression.type'"),
        ({"kafka.compression.type": "lzma"}, "one of none, gzip, snappy, lz4, zstd"),
        ({"kafka.batch.size": "0"}, "want 1 to"),
        ({"kafka.batch.size": "9" * 5000}, "want 1 to"),
        ({"topic": " "}, "option 'topic' is empty"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "commandConfig"),
        ({"magic": "3"}, "one of 0, 1, 2"),
        ({"path": "somewhere"}, "unknown option 'path'"),
        ({"kafka.compression.type": "zstd", "magic": "1"}, "needs format 2"),
    ],
)
def test_an_option_that_will_not_do_is_told(options: dict[str, str], words: str) -> None:
    servers = {"kafka.bootstrap.servers": "127.0.0.1:1"} if options else {}
    with pytest.raises(errors.WrongUse) as raised:
        WriterOptions.parse({**servers, **options})
    assert words in str(raised.value)


def test_options_of_the_connector_are_taken_in_any_case() -> None:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "KAFKA.Compression.Type": "LZ4",
        "kafka.acks": "all",
        "kafka.enable.idempotence": "false",
        "kafka.metadata.max.age.ms": "1000",
        "kafka.security.protocol": "PLAINTEXT",
        "includeHeaders": "true",
        "checkpointLocation": "/state",
        "topic": " orders ",
    }
    assert WriterOptions.parse(options) == WriterOptions("127.0.0.1:1", topic="orders", codec=3)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"text": pa.string()}, "found: text"),
        ({"value": pa.int64()}, "column 'value' has type int64, not binary or string"),
        ({"value": pa.string(), "partition": pa.int64()}, "not int: cast it"),
        ({"value": pa.string(), "headers": pa.string()}, "not array<struct"),
        ({"value": pa.string(), "timestamp": pa.timestamp("us")}, "not timestamp_ltz: cast it"),
        ({"batch": pa.binary()}, "add a column 'partition'"),
    ],
)
def test_columns_that_will_not_do_are_told(columns: dict[str, pa.DataType], words: str) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders"}
    schema = from_arrow_schema(pa.schema(columns.items()))
    with pytest.raises(errors.WrongUse) as raised:
        Writer.of(options, schema)
    assert words in str(raised.value)
    del options["topic"]
    with pytest.raises(errors.WrongUse, match="set option 'topic'"):
        Writer.of(options, from_arrow_schema(pa.schema({"value": pa.binary()}.items())))


def test_a_column_that_is_there_twice_is_told() -> None:
    twice = pa.schema([("value", pa.binary()), ("value", pa.string()), ("more", pa.int8())])
    with pytest.raises(errors.WrongUse, match="two columns 'value'"):
        check_columns(twice, "orders")


def test_records_may_have_a_column_that_is_called_batch() -> None:
    columns = pa.schema([("value", pa.binary()), ("batch", pa.int64())])
    assert check_columns(columns, "orders") == ("value",)
