"""The two ends of a task that makes columns: what Spark's decoders are given, and what they made.

    read     fetches a range, and finds the schema ids of keys and values
    Spark    decodes each by the schema of its id, in the JVM, where `write` cannot
    write    puts the columns into one staged file, and what does not fit into another

All is one stage of Spark's: a range stays in a task, in the order of its offsets. A row of Spark's
is a piece of it, some thousand records: what is to be decoded of them is a list, which Spark has a
function for, and all that is not passes by as Arrow's own bytes. A row for each record took the JVM
and Arrow five times as long. After the last piece `read` sends a row that is none, with what it has
to tell in `told`. What `write` decodes, as Protobuf and most of Avro, does not pass through the
JVM: a task is both ends then.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.archiving import archive_files
from pipeline.archiving.archive_files import STAGING
from pipeline.archiving.staged import RangeFiles, StagedFile
from pipeline.left_out import LeftOut
from pipeline.reading.ranges import Meter, records_of
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.values import wire_format
from pipeline.values.columns import DECODED, Columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pipeline.archiving.layout import Layout
    from pipeline.archiving.parquet_writer import Compression
    from pipeline.filesystem import Location
    from pipeline.reading.options import SourceOptions
    from pipeline.reading.plan import Range
    from pipeline.values.payload import Payload

LOOKED_AT = 1000
"""Offsets of a range in which the first schemas are looked for."""
MOST_TOLD = 1000
"""Schema ids that are not known yet, which a task tells of."""

PIECE_ROWS, PIECE_BYTES = 4096, 4 << 20
"""Records of a piece, at most, and about how many bytes of them; a larger one is a piece itself."""
ROWS_IN_TASK = 1 << 16
"""The same of a piece that does not pass through the JVM."""

PASSED = ("offset", "timestamp", "timestampType", "headers", "key", "value")
ENCODED = pa.list_(pa.struct([("id", pa.int32()), ("data", pa.binary())]))
"""Keys or values with their schema ids; what cannot be decoded is null."""
READ = pa.schema(
    [
        ("range", pa.int32()),
        ("records", pa.binary()),
        ("key", ENCODED),
        ("value", ENCODED),
        ("told", pa.string()),
    ]
)
"""`records` has the columns PASSED and `_ids` of what is decoded, as a stream of Arrow's IPC."""
REASON = pa.field("reason", pa.string(), nullable=False)
DEAD_LETTERS = RECORDS_AND_HEADERS.append(REASON)
"""Records as an archive has them, and why each is here."""


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

    def unknown(self) -> dict[str, list[int]]:
        """The schema ids at the beginning of the first range that are not known, by what has them:
        for who knows none, and would have a pass of tasks for nothing."""
        first = self.ranges[0]
        few = first._replace(end=min(first.end, first.start + LOOKED_AT))
        *_, last = replace(self, ranges=(few,))._rows(0)
        found: dict[str, list[int]] = json.loads(last["told"][0].as_py())["unknown"]
        return found

    def _rows(self, number: int) -> Iterator[pa.RecordBatch]:
        unknown: dict[str, set[int]] = {payload.name: set() for payload in self.payloads}
        most = PIECE_ROWS if any(one.by_spark for one in self.payloads) else ROWS_IN_TASK
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
                for piece in _pieces(rows, most):
                    row = self._row(number, piece, unknown)
                    # Once a schema has to be asked for, all is done again with it.
                    if not any(unknown.values()):
                        yield row
                if any(unknown[one.name] for one in self.payloads if not one.known):
                    break  # of the first schemas most are at the beginning
        told = {
            "unknown": {name: sorted(ids)[:MOST_TOLD] for name, ids in unknown.items() if ids},
            "bytes": meter.bytes,
            **left_out.as_json(),
        }
        yield _row_of(range=number, told=json.dumps(told))

    def _row(
        self, number: int, records: pa.RecordBatch, unknown: dict[str, set[int]]
    ) -> pa.RecordBatch:
        passed = records.select(PASSED)
        encoded = {}
        for payload in self.payloads:
            values = records[payload.name]
            if payload.header:
                ids = wire_format.schema_ids(values)
                new = set(pc.unique(ids.drop_null()).to_pylist()) - payload.known
                # Of a topic without headers these can be as many as its records.
                if len(unknown[payload.name]) < MOST_TOLD:
                    unknown[payload.name] |= new
            else:
                ids = pc.if_else(pc.is_valid(values), pa.scalar(0, pa.int32()), None)
            passed = passed.append_column(f"{payload.name}_id", ids)
            if not payload.by_spark:
                continue
            data = wire_format.marked(values) if payload.mark else values
            both = pa.StructArray.from_arrays([ids, data], fields=list(ENCODED.value_type))
            encoded[payload.name] = pa.ListArray.from_arrays([0, len(both)], both)
        return _row_of(range=number, records=_to_bytes(passed), **encoded)


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
            for batch in itertools.chain([first], rest):
                for row in range(batch.num_rows):
                    if batch["told"][row].is_valid:
                        told = json.loads(batch["told"][row].as_py())
                    else:
                        self._add(range_, self._piece(batch, row), files, dead, facts)
            unknown = told.pop("unknown")
            if unknown:
                return {"unknown": unknown}
            metadata = self._metadata(range_, told)
            files.finish(metadata("values"))
            dead.finish(metadata("records"))
        facts |= {"files": files.files, "file_bytes": files.size, **told}
        return facts | ({"dead_files": {name: dead.staged}} if dead.is_open else {})

    def _piece(self, batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """The records of a row, with what is decoded of them."""
        records = _from_bytes(batch["records"][row].as_buffer())
        for payload in self.payloads:
            name = payload.name + DECODED
            decoder = self.columns.parts[payload.name].decoder
            if decoder is not None:
                ids = records[f"{payload.name}_id"]
                records = records.append_column(name, decoder.decode(records[payload.name], ids))
            elif name in batch.schema.names:
                records = records.append_column(name, batch[name][row].values)
        return records

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


@dataclass(frozen=True)
class ReadAndWriteTask:
    """Both ends in one, where Spark has nothing to decode between them. Picklable."""

    read: ReadTask
    write: WriteTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.write(self.read(batches))


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


def _pieces(records: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    rows = max(1, min(most, PIECE_BYTES * records.num_rows // max(1, records.nbytes)))
    return (records.slice(start, rows) for start in range(0, records.num_rows, rows))


def _row_of(**columns: Any) -> pa.RecordBatch:
    """A row of READ."""
    arrays = []
    for field in READ:
        value = columns.get(field.name)
        arrays.append(value if isinstance(value, pa.Array) else pa.array([value], field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=READ)


def _to_bytes(records: pa.RecordBatch) -> pa.BinaryArray:
    """One element, whose bytes are not copied."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as stream:
        stream.write_batch(records)
    data = sink.getvalue()
    ends = pa.array([0, data.size], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])


def _from_bytes(data: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as stream:
        return stream.read_next_batch()
