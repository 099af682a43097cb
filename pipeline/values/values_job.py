"""A micro-batch of an archive of values: decoded in tasks or by Spark, published once.

What was decided for a micro-batch is noted in the state before any of it is published: the schemas
that it was read by, and the ids that the registry did not have. A micro-batch that was cut off is
decoded in the same way again, whatever has been registered since, so that no record is both a dead
letter and a row, or neither.

    values.json            in the state: the last micro-batch, schemas, columns
    published.json         its files
    dead_letters.json      those of its dead letters, which are published first, or are sent first
                           (dead_letter_topic.json)
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipeline.archiving.archive_job import covered_by
from pipeline.archiving.publication import Publication
from pipeline.errors import Refused, Undecodable
from pipeline.values.avro import refuse_without_package
from pipeline.values.columns import DECODED, Columns, Part
from pipeline.values.decode_tasks import READ, ReadAndWriteTask, ReadTask, WriteTask
from pipeline.values.evolution import refuse_change
from pipeline.values.protobuf import Protobuf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from pipeline.archiving.layout import Layout
    from pipeline.archiving.parquet_writer import Compression
    from pipeline.filesystem import Location
    from pipeline.reading.options import SourceOptions
    from pipeline.reading.plan import Range
    from pipeline.state import State
    from pipeline.values.dead_letter_topic import DeadLetterTopic
    from pipeline.values.known_schemas import KnownSchemas

NOTE = "values"
DEAD_LETTERS = "dead_letters"
"""The note of what is published of them."""
Facts = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where the files go, and how they are written."""

    folder: Location
    dead_letters: Location | None
    layout: Layout
    cluster: str | None
    compression: Compression
    grow: Callable[[pa.Schema, Mapping[tuple[str, ...], str]], None] | None = None
    """Lets a table have new columns, and other names for old ones."""


class ValuesJob:
    """Decodes ranges, and publishes what came of them. In the driver alone."""

    def __init__(
        self,
        source: SourceOptions,
        place: Place,
        state: State,
        schemas: Sequence[KnownSchemas],
        publication: Callable[[Layout], Publication],
        dead_letters: Publication | DeadLetterTopic | None,
    ) -> None:
        """Finishes what the last run began to publish. `publication` gives that of files in a
        layout. Raises ForeignState, Refused, Unreachable."""
        self._source = source
        self._place = place
        self._state = state
        self._schemas = schemas
        self._open = publication
        self._dead_letters = dead_letters
        self._columns: pa.Schema | None = None
        """Of what is published, or about to be."""
        self._publication: Publication | None = None
        noted = state.read(NOTE)
        if dead_letters is not None:
            dead_letters.finish()
        if noted is not None:
            for one in schemas:
                one.reader = noted["parts"][one.name]["reader"]
        if noted is not None:
            self._columns = _schema_in(noted["columns"])
            self._publication = self._opened(self._columns, grow=True)
            self._publication.finish()
        else:
            Publication(place.folder, state).finish()  # of what was staged before the first note
        again = noted is not None and self.last < noted["batch"]
        for one in schemas:
            one.restore(None if noted is None else noted["parts"][one.name], missing=again)

    @property
    def last(self) -> int:
        """The last micro-batch that is published; -1 before the first."""
        return -1 if self._publication is None else self._publication.last

    def do(self, spark: SparkSession, ranges: Sequence[Range], batch_id: int) -> list[Facts]:
        """Stage the files of a micro-batch's ranges. Raises Refused for a schema that the table
        cannot follow, Undecodable for a record that does not fit where there is no place for it,
        and what reading and the registry raise."""
        if batch_id <= self.last:
            return [
                {**range_._asdict(), "offsets": range_.size, "records": 0, "bytes": 0, "files": {}}
                for range_ in ranges
            ]
        self._meet(ranges)
        while True:
            facts = self._decode(spark, ranges, batch_id)
            unknown = [one["unknown"] for one in facts if "unknown" in one]
            if not unknown:
                break
            for one in self._schemas:
                one.learn({id_ for told in unknown for id_ in told.get(one.name, ())})
        dead = sorted(
            (one["topic"], one["partition"], *one["first_dead"])
            for one in facts
            if one["dead_letters"]
        )
        if dead and self._place.dead_letters is None:
            topic, partition, offset, reason = dead[0]
            raise Undecodable(
                f"{topic}-{partition}, offset {offset:,}: {reason}; give --dead-letters (a folder, "
                "or topic:NAME) to put such records there and go on"
            )
        return facts

    def _meet(self, ranges: Sequence[Range]) -> None:
        """Look for schemas where none is known yet, so that no pass of tasks is for that alone."""
        payloads = tuple(one.payload for one in self._schemas)
        if not ranges or all(payload.known for payload in payloads):
            return
        unknown = ReadTask(self._source, tuple(ranges[:1]), payloads).unknown()
        for one in self._schemas:
            one.learn(unknown.get(one.name, ()))

    def commit(self, batch_id: int, results: list[Facts]) -> None:
        """Publish a micro-batch; again is harmless. Raises Refused, ForeignState."""
        if batch_id <= self.last:
            return
        assert self._columns is not None
        self._state.keep(batch_id)
        noted, columns = self._state.read(NOTE), _schema_out(self._columns)
        self._state.write(
            NOTE,
            {
                "batch": batch_id,
                "columns": columns,
                "parts": {one.name: one.noted() for one in self._schemas},
            },
        )
        if self._dead_letters is not None:
            with_dead = [facts for facts in results if "dead_files" in facts]
            letters = {
                name: one for facts in with_dead for name, one in facts["dead_files"].items()
            }
            self._dead_letters.publish(batch_id, letters, [covered_by(one) for one in with_dead])
        if self._publication is None or noted is None or noted["columns"] != columns:
            self._publication = self._opened(self._columns, grow=noted is not None)
        files = {name: staged for facts in results for name, staged in facts["files"].items()}
        self._publication.publish(batch_id, files, [covered_by(facts) for facts in results])

    def _opened(self, columns: pa.Schema, *, grow: bool) -> Publication:
        if grow and self._place.grow is not None:
            self._place.grow(columns, self._renamed())
        return self._open(replace(self._place.layout, columns=columns))

    def _renamed(self) -> dict[tuple[str, ...], str]:
        """New names of columns, by the paths with the old ones."""
        found: dict[tuple[str, ...], str] = {}
        for one in self._schemas:
            first = ("_key",) if one.name == "key" else ()
            if one.reader is not None:
                for path, name in one.format.renamed(one.reader).items():
                    found[(*first, *path)] = name
        return found

    def _decode(self, spark: SparkSession, ranges: Sequence[Range], batch_id: int) -> list[Facts]:
        payloads = tuple(one.payload for one in self._schemas)
        read = ReadTask(self._source, tuple(ranges), payloads)
        # A range of numbers is what Spark cuts into exactly as many partitions as it is told to.
        numbers = spark.range(0, len(ranges), 1, len(ranges))
        decoded = None
        if any(payload.by_spark for payload in payloads):
            decoded = self._decoded(numbers.mapInArrow(read, _ddl(READ)))
        columns = self._columns_of(decoded)
        layout = replace(self._place.layout, columns=columns.schema)
        layout.check()
        self._grow(columns.schema)
        write = WriteTask(
            tuple(ranges),
            payloads,
            columns,
            layout,
            self._place.folder,
            self._place.dead_letters,
            self._place.cluster,
            self._place.compression,
            batch_id,
        )
        if decoded is None:
            answers = numbers.mapInArrow(ReadAndWriteTask(read, write), "facts string").collect()
        else:
            answers = decoded.mapInArrow(write, "facts string").collect()
        return [json.loads(row[0]) for row in answers]

    def _decoded(self, rows: DataFrame) -> DataFrame:
        from pyspark.errors import PySparkException

        try:
            decoded = [_decoded_by(one, rows) for one in self._schemas if one.payload.by_spark]
            rows = rows.select("range", "records", *decoded, "told")
            rows.schema  # noqa: B018 - what Spark cannot make columns of it says now
        except TypeError as failure:
            refuse_without_package(failure)
            raise
        except PySparkException as failure:
            refuse_without_package(failure)
            line = " ".join(str(failure).split())[:300]
            raise Refused(f"Spark makes no columns of the schema: {line}") from None
        return rows

    def _columns_of(self, decoded: DataFrame | None) -> Columns:
        """Of what Spark decodes, if it does, and of what tasks decode."""
        from pyspark.sql.pandas.types import to_arrow_schema

        types = None if decoded is None else to_arrow_schema(decoded.schema, timezone="UTC")
        parts = {}
        for one in self._schemas:
            decoder = one.decoder
            if one.reader is None or decoder is not None:
                type_ = None if decoder is None else decoder.type
                parts[one.name] = Part(one.format, type_, decoder=decoder)
                continue
            assert types is not None
            assert not isinstance(one.format, Protobuf)
            type_ = one.format.type_of(types.field(one.name + DECODED).type.value_type)
            parts[one.name] = Part(one.format, type_, one.format.required(one.reader))
        return Columns(parts)

    def _grow(self, columns: pa.Schema) -> None:
        """Whether the table can follow. Raises Refused."""
        if self._columns is not None:
            refuse_change(self._place.layout.table, self._columns, columns, self._renamed())
        self._columns = columns


def _decoded_by(schemas: KnownSchemas, rows: DataFrame) -> Column:
    from pyspark.sql.functions import transform

    def decode(one: Column) -> Column:
        assert schemas.reader is not None
        assert not isinstance(schemas.format, Protobuf)
        return schemas.format.column(
            one["data"],
            one["id"],
            schemas.writers,
            schemas.reader,
            header=schemas.payload.header,
        )

    return transform(rows[schemas.name], decode).alias(schemas.name + DECODED)


def noted_columns(state: State) -> pa.Schema | None:
    """The columns of what is published, or about to be; None before the first micro-batch."""
    noted = state.read(NOTE)
    return None if noted is None else _schema_in(noted["columns"])


def _ddl(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _schema_out(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _schema_in(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
