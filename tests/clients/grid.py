"""The grid: what every client wrote, in every codec, as every client reads it.

A topic for each writer and each record format, with a partition for each codec, so that a cell of
the grid is a partition. `grid.json` keeps what was found; docs/clients.md is made from it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.clients.drivers.driver import CODECS, KEEP_FOR_EVER
from tests.clients.grid_clients import GRID_CLIENTS
from tests.clients.records import Record, as_read_by, some_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.grid_clients import GridClient, GridDrivers
    from tests.clients.records import Stored

FILE = Path(__file__).with_name("grid.json")

#: The same of the most used releases, each tried against a few clients of the grid.
USED_FILE = Path(__file__).with_name("used_clients.json")

#: In each codec: enough for several batches, and for old readers to fetch more than once.
RECORD_COUNT = 400

#: Of each record format: a message.format.version that asks for it, None for the default.
FORMATS = {2: None, 1: "0.10.2", 0: "0.9.0"}

PASSED = "ok"

#: In place of a reader: what the writer was answered.
ACKS = "acks"

NO_ZSTD_IN_OLD_FORMATS = "zstd came with record format 2 and is refused in older ones"
NO_CODEC = "the client has no {}"
APACHE_GIVES_NO_ZSTD = "Apache Kafka gives zstd to readers from Fetch v10 on only"


class Written(NamedTuple):
    """A topic of the grid."""

    topic: str
    #: Of each codec that could be written.
    records: dict[str, list[Record]]


class Outcome(NamedTuple):
    """A cell: `PASSED`, or what was wrong."""

    text: str
    #: Known before: the cell cannot work.
    excused: bool = False


class Grid:
    """Topics are written when they are first read, and cells kept as they are found."""

    def __init__(self, drivers: GridDrivers, bootstrap: str, *, apache: bool) -> None:
        self.drivers = drivers
        self._bootstrap = bootstrap
        #: The server is Apache Kafka, which does not do everything that ours does.
        self._apache = apache
        self._written: dict[str, Written] = {}
        #: `format writer codec` -> reader -> outcome.
        self.rows: dict[str, dict[str, Outcome]] = {}

    def written(self, writer: GridClient, record_format: int) -> Written:
        """The topic of this writer. Raises `fetched.NotAvailable`."""
        place = f"{record_format} {writer.key}"
        if place not in self._written:
            self.drivers.get(writer)
            self._written[place] = self._write(writer, record_format)
        return self._written[place]

    def read(self, reader: GridClient, writer: GridClient, record_format: int) -> None:
        """Fill the cells of one topic and one reader. Raises `fetched.NotAvailable`."""
        self.drivers.get(reader)
        written = self.written(writer, record_format)
        wanted: dict[str, list[Record]] = {}
        for codec, records in written.records.items():
            excuse = self._excuse(reader, codec, record_format)
            if excuse:
                outcome = Outcome(excuse, excused=True)
                self._row(record_format, writer, codec)[reader.key] = outcome
            else:
                wanted[codec] = [
                    as_seen(record, writer, reader, record_format) for record in records
                ]
        ends = {CODECS.index(codec): len(records) for codec, records in wanted.items()}
        stored: Stored = {}
        failure = ""
        try:
            stored = self.drivers.read(reader, self._bootstrap, written.topic, ends)
        except Exception as error:  # a client's own, of any kind: it is what the cell says
            failure = f"{type(error).__name__}: {error}"
        for codec, records in wanted.items():
            text = failure or difference(records, stored, CODECS.index(codec))
            self._row(record_format, writer, codec)[reader.key] = Outcome(text or PASSED)

    def failures(self, *, writer: str = "", reader: str = "") -> list[str]:
        """Cells that should have passed and did not: acks of a writer, or what a reader read."""
        return [
            f"{row}, {client}: {outcome.text}"
            for row, outcomes in self.rows.items()
            for client, outcome in outcomes.items()
            if outcome.text != PASSED
            and not outcome.excused
            and (client == reader if reader else client == ACKS and row.split()[1] == writer)
        ]

    def _write(self, writer: GridClient, record_format: int) -> Written:
        topic = f"grid-{record_format}-{writer.key}-{os.urandom(4).hex()}"
        configs = dict(KEEP_FOR_EVER)
        version = FORMATS[record_format]
        if version is not None:
            configs["message.format.version"] = version
        self.drivers.create_topic(self._bootstrap, topic, configs)
        found: dict[str, list[Record]] = {}
        for codec in writer.writes:
            row = self._row(record_format, writer, codec)
            refused = codec == "zstd" and record_format < 2
            records = records_of(writer, CODECS.index(codec), record_format)
            half = len(records) // 2
            try:
                # Twice, so that no batch is larger than what some old readers fetch at a time.
                for part in (records[:half], records[half:]):
                    self.drivers.write(writer, self._bootstrap, topic, part, codec=codec)
            except Exception as error:  # a client's own, of any kind: it is what the cell says
                failure = Outcome(f"{type(error).__name__}: {error}")
                row[ACKS] = Outcome(NO_ZSTD_IN_OLD_FORMATS, excused=True) if refused else failure
            else:
                found[codec] = records
                row[ACKS] = Outcome("was not refused" if refused else PASSED)
        return Written(topic, found)

    def _excuse(self, reader: GridClient, codec: str, record_format: int) -> str:
        if record_format < 2 and reader.no_old_formats:
            return reader.no_old_formats
        if codec == "zstd":
            # A reader that does not know it is given gzip in its place.
            given = reader.fetch_version >= 10 or not self._apache
            return "" if given else APACHE_GIVES_NO_ZSTD
        if codec not in reader.reads:
            return NO_CODEC.format(codec)
        return reader.no_old_lz4 if (codec, record_format) == ("lz4", 0) else ""

    def _row(self, record_format: int, writer: GridClient, codec: str) -> dict[str, Outcome]:
        return self.rows.setdefault(f"{record_format} {writer.key} {codec}", {})


def records_of(writer: GridClient, partition: int, record_format: int) -> list[Record]:
    """What this client writes to a partition. Formats 0 and 1 have no place for headers."""
    # A null value in a header is left to other tests: not every reader of headers survives it.
    abilities = writer.abilities._replace(null_header_value=False)
    records = some_records(RECORD_COUNT, abilities, seed=partition, partitions=1)
    headers = writer.headers and record_format == 2
    return [
        record._replace(partition=partition, headers=record.headers if headers else ())
        for record in records
    ]


def as_seen(record: Record, writer: GridClient, reader: GridClient, record_format: int) -> Record:
    """As the reader must show it: what one of the two, or the format between, lacks is gone."""
    has_time = writer.timestamps and reader.timestamps and record_format >= 1
    seen = record._replace(
        timestamp_ms=record.timestamp_ms if has_time else -1,
        headers=record.headers if reader.headers else (),
    )
    return as_read_by(seen, reader.abilities)


def difference(wanted: list[Record], stored: Stored, partition: int) -> str:
    """Where a partition first is not as it must be, or nothing."""
    found = stored.get(partition, [])
    for number, (offset, record) in enumerate(found[: len(wanted)]):
        if (offset, record) != (number, wanted[number]):
            return f"wanted offset {number}: {wanted[number]}, found offset {offset}: {record}"
    if len(found) != len(wanted):
        return f"{len(found)} records in place of {len(wanted)}"
    return ""


def kept_rows(file: Path = FILE) -> dict[str, dict[str, str]]:
    """The rows of a file of cells."""
    rows: dict[str, dict[str, str]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return rows


def keep(grid: Grid, clients: Sequence[GridClient] = GRID_CLIENTS, file: Path = FILE) -> None:
    """Write a file of cells anew, a line for each row."""
    facts = [
        {
            "key": client.key,
            "name": grid.drivers.name(client),
            "writes": bool(client.writes),
            "reads": bool(client.reads),
            "needs": client.needs,
        }
        for client in clients
    ]
    rows = {
        row: {client: outcome.text for client, outcome in sorted(outcomes.items())}
        for row, outcomes in sorted(grid.rows.items())
    }
    clients_text = ",\n".join(json.dumps(fact) for fact in facts)
    rows_text = ",\n".join(f"{json.dumps(row)}: {json.dumps(rows[row])}" for row in rows)
    file.write_text(
        f'{{"clients": [\n{clients_text}\n],\n"rows": {{\n{rows_text}\n}}}}\n', encoding="utf-8"
    )
