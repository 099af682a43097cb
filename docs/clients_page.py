"""docs/clients.md: which client reads what which client wrote, as the last run of the grid had it.

`tests/clients/grid.json` holds the cells; a test fails when a run finds others. What a client sends
comes from the frames in `tests/protocol/corpus`, which these clients sent.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1] / "tests"

HEAD = """\
# Clients that were tried

Which clients read what which others wrote. Real releases of client libraries, from 2015 to today,
write to one broker in every codec they have, and every one of them reads all of it. Each record is
compared: offset, key, value, timestamp, headers. Some keys and some values are null or empty.
Every `make test` does the same, and fails where a cell is not as it is here. `make docs` makes
this page of what `make clients-grid` found.

What a client never had is not missed: before Kafka 0.10 clients know no timestamps, before 0.11 no
headers. Such a client shows none, and what it writes has none. Clients that do not know zstd are
given gzip in its place.

*Produce* and *Fetch* are the versions that the client uses. *Blind* clients send these without
asking which versions there are.

| client | Produce | Fetch | |
| --- | ---: | ---: | --- |
"""

GRID = """
## {title}

{text} A cell says `all` where everything that was written
came back in every codec, and else what is missing.

"""

TITLES = {
    2: (
        "Who reads what was written",
        "Rows write and columns read, in topics with default settings.",
    ),
    1: (
        "Topics in message format 1",
        "With `message.format.version=0.10.2`. These have no place for headers.",
    ),
    0: (
        "Topics in message format 0",
        "With `message.format.version=0.9.0`. These have no place for headers and timestamps.",
    ),
}

USED = """
## The most used releases of the last five years

Each reads what the oldest client and the newest, java 0.8.2.2 and java 4.4.0, wrote to topics of
each format, and each writes to such topics what those two read; keys and values are null and empty
there too. `all` is every codec that was tried with the client. `make test-long` does the same with
the clients whose language is installed, and CI with all of them. librdkafka is in the clients for
C++, Go, JavaScript, .NET, PHP, Python, Ruby and Rust; it was tried through its own interface.
Releases 2.5.0 to 2.15.0 are [allowed for](conversion.md#clients-that-misread-formats-0-and-1) in
format 0 and 1.

| | reads format 2 | 1 | 0 | writes format 2 | 1 | 0 |
| --- | :---: | :---: | :---: | :---: | :---: | :---: |
"""

NEEDS = """
## What they must be told

For these tables each reads partitions that it is given, from an offset that it is given, and
commits nothing; [groups](groups.md) were tried apart from them. Besides:

"""

PASSED = "ok"
ACKS = "acks"

Rows = dict[str, dict[str, str]]


class Client(NamedTuple):
    key: str
    #: Library and release, as the corpus marks its frames.
    name: str
    writes: bool
    reads: bool
    needs: str


def clients_page() -> str:
    """The whole page."""
    kept = json.loads((TESTS / "clients" / "grid.json").read_text(encoding="utf-8"))
    clients = [Client(**facts) for facts in kept["clients"]]
    rows: Rows = kept["rows"]
    sent = versions_sent()
    page = HEAD + "".join(client_row(client, sent[client.name]) for client in clients)
    for record_format, (title, text) in TITLES.items():
        page += GRID.format(title=title, text=text) + table(rows, clients, record_format)
    used = json.loads((TESTS / "clients" / "used_clients.json").read_text(encoding="utf-8"))
    used_clients = [Client(**facts) for facts in used["clients"]]
    page += USED + used_table(used["rows"], used_clients)
    clients += [client for client in used_clients if not client.name.startswith("java ")]
    needs = [f"- {client.name}: {client.needs}\n" for client in clients if client.needs]
    return page + NEEDS + "".join(needs)


def used_table(rows: Rows, clients: list[Client]) -> str:
    """A line for each release, and the reasons under them."""
    reasons: list[str] = []
    lines = []
    for client in clients:
        cells = [
            *(read_by(client, record_format, rows, reasons) for record_format in TITLES),
            *(written_by(client, record_format, rows, reasons) for record_format in TITLES),
        ]
        lines.append(f"| **{client.name}** | {' | '.join(cells)} |\n")
    notes = [f"{number}. {reason}\n" for number, reason in enumerate(reasons, 1)]
    return "".join(lines) + ("\n" + "".join(notes) if notes else "")


def read_by(client: Client, record_format: int, rows: Rows, reasons: list[str]) -> str:
    """What is missing of what others wrote in a format, or `all`."""
    codecs: Rows = defaultdict(dict)
    for row, cells in rows.items():
        row_format, writer, codec = row.split()
        if row_format != str(record_format) or writer == client.key or client.key not in cells:
            continue
        if codecs[codec].get(client.key, PASSED) == PASSED:
            codecs[codec][client.key] = cells[client.key]
    return missing(codecs, client.key, reasons) or "all"


def written_by(client: Client, record_format: int, rows: Rows, reasons: list[str]) -> str:
    """What is missing of what a client wrote in a format, or `all`."""
    codecs = {
        row.split()[2]: {ACKS: next((text for text in cells.values() if text != PASSED), PASSED)}
        for row, cells in rows.items()
        if row.split()[:2] == [str(record_format), client.key]
    }
    return missing(codecs, ACKS, reasons) or "all"


def table(rows: Rows, clients: list[Client], record_format: int) -> str:
    """The grid of one record format, and the reasons under it."""
    readers = [client for client in clients if client.reads]
    reasons: list[str] = []
    lines = [
        f"| | {' | '.join(client.name for client in readers)} |\n",
        f"| --- |{' :---: |' * len(readers)}\n",
    ]
    for writer in clients:
        codecs = {
            row.split()[2]: cells
            for row, cells in rows.items()
            if row.split()[:2] == [str(record_format), writer.key]
        }
        if not codecs:
            continue
        unwritten = missing(codecs, ACKS, reasons)
        written = {codec: found for codec, found in codecs.items() if found[ACKS] == PASSED}
        cells = [missing(written, reader.key, reasons) or "all" for reader in readers]
        name = f"**{writer.name}**{', ' if unwritten else ''}{unwritten}"
        lines.append(f"| {name} | {' | '.join(cells)} |\n")
    notes = [f"{number}. {reason}\n" for number, reason in enumerate(reasons, 1)]
    return "".join(lines) + ("\n" + "".join(notes) if notes else "")


def missing(codecs: Rows, client: str, reasons: list[str]) -> str:
    """The codecs with which it did not work, and the numbers of their reasons."""
    found = []
    for codec, outcomes in codecs.items():
        reason = outcomes.get(client, "not tried")
        if reason == PASSED:
            continue
        if reason not in reasons:
            reasons.append(reason)
        found.append(f"no {codec} ({reasons.index(reason) + 1})")
    return ", ".join(found)


def client_row(client: Client, sent: dict[str, str]) -> str:
    """A line of the first table. Fetch of a client that only writes is empty."""
    blind = "" if "api_versions" in sent else "blind"
    return f"| {client.name} | {sent['produce']} | {sent.get('fetch', '')} | {blind} |\n"


def versions_sent() -> dict[str, dict[str, str]]:
    """Of each client in the corpus: API -> the version of it that it sent."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in (TESTS / "protocol" / "corpus").glob("*_v*.txt"):
        api, _, version = path.stem.rpartition("_v")
        for line in path.read_text(encoding="utf-8").splitlines():
            name = re.split(r"[,:]", line, maxsplit=1)[0]
            found[name][api] = version
    return found
