"""The two ends of a task that makes columns: what Spark's decoders are given, and what they made.

    read     fetches a range, and finds the schema ids of keys and values
    Spark    decodes each by the schema of its id, in the JVM
    write    puts the columns into one staged file, and what does not fit into another

All is one stage of Spark's: a range stays in a task, in the order of its offsets. After the last
record `read` sends a row that is none, with what it has to tell in `told`.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.archiving import archive_files
from pipeline.archiving.archive_files import STAGING
from pipeline.archiving.staged import RangeFiles, StagedFile
from pipeline.left_out import LeftOut
from pipeline.reading.ranges import Meter, records_of
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.values import wire_format
from pipeline.values.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pipeline.archiving.layout import Layout
    from pipeline.archiving.parquet_writer import Compression
    from pipeline.filesystem import Location
    from pipeline.reading.options import SourceOptions
    from pipeline.reading.plan import Range

MOST_TOLD = 1000
"""Schema ids that are not known yet, which a task tells of."""

PASSED = ("offset", "timestamp", "timestampType", "headers", "key", "value")
READ = pa.schema(
    [
        pa.field("range", pa.int32()),
        *(pa.field(name, RECORDS_AND_HEADERS.field(name).type) for name in PASSED),
        pa.field("key_id", pa.int32()),
        pa.field("value_id", pa.int32()),
        pa.field("told", pa.string()),
    ]
)
REASON = pa.field("reason", pa.string(), nullable=False)
DEAD_LETTERS = RECORDS_AND_HEADERS.append(REASON)
"""Records as an archive has them, and why each is here."""


class Payload(NamedTuple):
    """How one of key and value is given to its decoder."""

    name: str
    header: bool
    """Whether it begins with Confluent's header."""
    mark: bool
    known: frozenset[int]
    """Schema ids that need not be asked for."""
    missing: frozenset[int]
    """Those of them that the registry has not got."""


@dataclass(frozen=True)
class ReadTask:
    """Record batches of READ for the numbers of ranges. Picklable."""

    source: SourceOptions
    ranges: tuple[Range, ...]
    payloads: tuple[Payload, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from self._rows(number)

    def _rows(self, number: int) -> Iterator[pa.RecordBatch]:
        unknown: dict[str, set[int]] = {payload.name: set() for payload in self.payloads}
        left_out, meter = LeftOut(), Meter()
        with contextlib.closing(self.source.source(patient=True)) as source:
            records = records_of(
                source,
                self.ranges[number],
                headers=True,
                on_gap=self.source.on_gap,
                on_corrupt=self.source.on_corrupt,
                committed_only=self.source.committed_only,
                fetch_bytes=self.source.fetch_bytes,
                left_out=left_out,
                meter=meter,
            )
            for rows in records:
                split = self._split(number, rows, unknown)
                # Once a schema has to be asked for, all is done again with it.
                if not any(unknown.values()):
                    yield split
        told = {
            "unknown": {name: sorted(ids)[:MOST_TOLD] for name, ids in unknown.items() if ids},
            "bytes": meter.bytes,
            **left_out.as_json(),
        }
        nothing = {field.name: [None] for field in READ}
        yield pa.RecordBatch.from_pydict(
            {**nothing, "range": [number], "told": [json.dumps(told)]}, schema=READ
        )

    def _split(
        self, number: int, rows: pa.RecordBatch, unknown: dict[str, set[int]]
    ) -> pa.RecordBatch:
        size = rows.num_rows
        found = {name: rows[name] for name in PASSED}
        found["range"] = pa.array(np.full(size, number, np.int32))
        found["headers"] = _never_null(found["headers"])
        for payload in self.payloads:
            values = found[payload.name]
            if payload.header:
                ids = wire_format.schema_ids(values)
                new = set(pc.unique(ids.drop_null()).to_pylist()) - payload.known
                # Of a topic without headers these can be as many as its records.
                if len(unknown[payload.name]) < MOST_TOLD:
                    unknown[payload.name] |= new
            else:
                ids = pc.if_else(pc.is_valid(values), pa.scalar(0, pa.int32()), None)
            if payload.mark:
                found[payload.name] = wire_format.marked(values)
            found[f"{payload.name}_id"] = ids
        return pa.RecordBatch.from_arrays(
            [found.get(field.name, pa.nulls(size, field.type)) for field in READ], schema=READ
        )


@dataclass(frozen=True)
class WriteTask:
    """Stages the files of a range, and answers with its facts as JSON. Picklable."""

    ranges: tuple[Range, ...]
    payloads: tuple[Payload, ...]
    columns: Columns
    layout: Layout
    folder: Location
    dead_letters: Location | None
    cluster: str | None
    compression: Compression
    batch_id: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batches = iter(batches)
        for first in batches:
            facts = self._range(first, batches)
            yield pa.RecordBatch.from_pydict({"facts": [json.dumps(facts)]})

    def _range(self, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> dict[str, Any]:
        range_ = self.ranges[first["range"][0].as_py()]
        facts: dict[str, Any] = {
            "topic": range_.topic,
            "partition": range_.partition,
            "end": range_.end,
            "offsets": range_.size,
            "records": 0,
            "dead_letters": 0,
        }
        told: dict[str, Any] = {}
        staging = self.folder.under(STAGING, str(self.batch_id))
        name = archive_files.name_of(range_.topic, range_.partition, range_.start, range_.end)
        dead = _DeadFile(self.dead_letters, self.batch_id, name, self.compression)
        with RangeFiles(staging, range_, self.layout, self.compression) as files, dead:
            batch: pa.RecordBatch | None = first
            while batch is not None:
                last = batch["told"][batch.num_rows - 1].as_py()
                if last is not None:
                    told = json.loads(last)
                    batch = batch.slice(0, batch.num_rows - 1)
                if batch.num_rows:
                    self._add(range_, _as_they_were(batch), files, dead, facts)
                batch = next(rest, None)
            unknown = told.pop("unknown")
            if unknown:
                return {"unknown": unknown}
            metadata = self._metadata(range_, told)
            files.finish(metadata("values"))
            dead.finish(metadata("records"))
        facts |= {"files": files.files, "file_bytes": files.size, **told}
        return facts | ({"dead_files": {name: dead.staged}} if dead.is_open else {})

    def _add(
        self,
        range_: Range,
        rows: pa.RecordBatch,
        files: RangeFiles,
        dead: _DeadFile,
        facts: dict[str, Any],
    ) -> None:
        facts["records"] += rows.num_rows
        columns, fits = self.columns.of(rows, range_.topic, range_.partition)
        if pc.all(fits).as_py():
            files.add(columns)
            return
        if pc.any(fits).as_py():
            files.add(columns.filter(fits))
        letters = self._letters(range_, rows.filter(pc.invert(fits)))
        facts["dead_letters"] += letters.num_rows
        facts.setdefault("first_dead", [letters["offset"][0].as_py(), letters["reason"][0].as_py()])
        dead.add(letters)

    def _letters(self, range_: Range, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Records that do not fit, as they were, with the reasons."""
        reasons = [self.columns.reason(row, self.payloads) for row in _each(rows)]
        found = {name: rows[name] for name in PASSED}
        for payload in self.payloads:
            if payload.mark:
                given = rows[payload.name].to_pylist()
                end = -len(wire_format.MARK)
                found[payload.name] = pa.array([one and one[:end] for one in given], pa.binary())
        found["topic"] = pa.array([range_.topic] * rows.num_rows)
        found["partition"] = pa.array([range_.partition] * rows.num_rows, pa.int32())
        found["reason"] = pa.array(reasons)
        return pa.RecordBatch.from_arrays(
            [found[field.name].cast(field.type) for field in DEAD_LETTERS], schema=DEAD_LETTERS
        )

    def _metadata(self, range_: Range, told: Mapping[str, Any]) -> Any:
        def metadata(shape: str) -> dict[bytes, bytes]:
            return archive_files.metadata(
                shape=shape,
                topic=range_.topic,
                partition=range_.partition,
                start=range_.start,
                end=range_.end,
                cluster=self.cluster,
                batch=self.batch_id,
                missing=told["offsets_missing"] + told["offsets_corrupt"],
            )

        return metadata


class _DeadFile:
    """The file of a range's dead letters, made when the first one comes, if there is a folder."""

    def __init__(
        self, folder: Location | None, batch_id: int, name: str, compression: Compression
    ) -> None:
        self._folder = None if folder is None else folder.under(STAGING, str(batch_id))
        # A task that was given up may still write while its second attempt does.
        self.staged = f"{name}.{uuid.uuid4().hex[:8]}"
        self._compression = compression
        self._file: StagedFile | None = None
        self._open = contextlib.ExitStack()

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def add(self, letters: pa.RecordBatch) -> None:
        if self._folder is None:
            return
        if self._file is None:
            file = StagedFile(
                self._folder, self.staged, "records", self._compression, schema=DEAD_LETTERS
            )
            self._file = self._open.enter_context(file)
        self._file.add(letters)

    def finish(self, metadata: Mapping[bytes, bytes]) -> None:
        if self._file is not None:
            self._file.finish(metadata)

    def __enter__(self) -> _DeadFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def _each(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return (rows.slice(index, 1) for index in range(rows.num_rows))


def _never_null(headers: pa.ListArray) -> pa.ListArray:
    """Headers on their way through Spark. Before each row it asks for the size of those before, and
    for nulls at the end of a list column Arrow's Java goes over all of them again: with 10,000
    records without headers in a batch that was four fifths of a job's time."""
    return pc.coalesce(headers, pa.scalar([], headers.type))


def _as_they_were(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with null for no headers, as an archive has them."""
    place = rows.schema.get_field_index("headers")
    headers = rows.column(place)
    none = pc.equal(pc.list_value_length(headers), 0)
    kept = pc.if_else(none, pa.scalar(None, headers.type), headers)
    return rows.set_column(place, rows.schema.field(place), kept)
