"""`triglot clients`: who has used a broker, and which of them a newer Kafka would not serve.

It reads `clients.json` in the data directory, which a running broker writes each minute and at its
stop, or asks the port of the metrics, which knows as of now.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tools.arguments import DONE, refuse, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.clients_file import SeenClients

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    Described = dict[str, Any]

DESCRIPTION = """\
Lists every client that the broker has seen, by address, client id and software: the release of
Kafka whose requests it speaks, the formats and codecs that it wrote, and what becomes of it with
other releases of Apache Kafka. Below the table stands what each that fails would meet, and what to
do.
"""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
WRONG_USE = 2


def add_commands(commands: Commands) -> None:
    """Add `clients` to the command line's."""
    clients = commands.add_parser(
        "clients",
        help="who uses a broker, and who breaks on Kafka 4",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    clients.set_defaults(run=run_clients)
    source = clients.add_mutually_exclusive_group()
    source.add_argument(
        "--data",
        default="data",
        metavar="DIR",
        help="the data directory, of a broker that runs or not; default: data",
    )
    source.add_argument(
        "--url",
        metavar="URL",
        help="the port of a broker's metrics instead (metrics.port): http://127.0.0.1:9404, or "
        "http://USER:PASSWORD@HOST:PORT",
    )
    clients.add_argument(
        "--token-file",
        metavar="FILE",
        help="a file with the token that --url wants (metrics.bearer.token)",
    )
    clients.add_argument(
        "--release",
        action="append",
        metavar="RELEASE",
        help="a release to judge by, as 4.1; may be given again; default 3.9 to 4.4",
    )
    clients.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long to wait for the answer of --url; default 10",
    )
    clients.add_argument("--json", action="store_true", help="JSON, for machines")


def run_clients(arguments: argparse.Namespace) -> int:
    """Print the clients; 0 when they were found."""
    from protocol.client_verdicts import JUDGED, describe
    from protocol.releases import RELEASES
    from tools.errors import NotDone
    from tools.printing import discard_output, print_json, print_lines

    releases = tuple(dict.fromkeys(arguments.release or JUDGED))
    unknown = [one for one in releases if one not in RELEASES]
    if unknown:
        there = f"there are {RELEASES[0]} to {RELEASES[-1]} (docs/releases.md)"
        return refuse(f"no release of Kafka is called '{unknown[0]}'; {there}", code=WRONG_USE)
    if arguments.token_file is not None and not arguments.url:
        return refuse("--token-file is for --url", code=WRONG_USE)
    try:
        seen = _asked(arguments) if arguments.url else _read(arguments.data)
    except NotDone as error:
        return refuse(str(error), code=1)
    described = [describe(usage, releases) for usage in reversed(seen.clients)]
    try:
        if arguments.json:
            print_json({"forgotten": seen.forgotten, "clients": described})
        else:
            print_lines(_lines(described, releases, seen.forgotten))
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    return DONE


def _read(directory: str) -> SeenClients:
    """What the data directory has. Raises NotDone."""
    from storage.clients_file import read_all_clients
    from storage.disk import DiskFilesystem
    from storage.errors import MalformedFile
    from storage.layout import CLIENTS
    from tools.errors import NotDone

    path = f"{directory}/{CLIENTS}"
    try:
        return read_all_clients(DiskFilesystem(), directory)
    except FileNotFoundError:
        raise NotDone(
            f"there is no {path}: no client was seen there yet (a running broker writes it each "
            "minute), or it is no data directory (--data DIR)"
        ) from None
    except OSError as error:
        raise NotDone(f"{path} can't be read: {error.strerror or error}") from error
    except MalformedFile as error:
        raise NotDone(str(error)) from error


def _asked(arguments: argparse.Namespace) -> SeenClients:
    """What the port of the metrics says. Raises NotDone."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    from storage.clients_file import decode_clients
    from storage.errors import MalformedFile
    from tools.errors import NotDone

    request, shown = _request(arguments.url, arguments.token_file)
    try:
        with urlopen(request, timeout=arguments.timeout) as answer:
            return decode_clients(answer.read(ANSWER_BYTES_MAX), shown)
    except HTTPError as error:
        if error.code == 401:
            raise NotDone(
                f"{shown} wants other credentials: http://USER:PASSWORD@HOST:PORT, or --token-file"
            ) from error
        raise NotDone(f"{shown} answers {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise NotDone(f"no answer from {shown}: {getattr(error, 'reason', error)}") from error
    except MalformedFile as error:
        raise NotDone(f"{shown} is not the port of a broker's metrics: {error}") from error


def _request(url: str, token_file: str | None) -> tuple[Any, str]:
    """The request for the clients, and its address without credentials. Raises NotDone."""
    from base64 import b64encode
    from urllib.parse import unquote, urlsplit
    from urllib.request import Request

    from storage.disk import DiskFilesystem
    from tools.errors import NotDone

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NotDone("--url wants http://HOST:PORT or https://HOST:PORT")
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/clients"
    request = Request(shown)
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {b64encode(user.encode()).decode()}")
    if token_file is not None:
        try:
            words = DiskFilesystem().read_bytes(token_file).decode("latin-1").split()
        except OSError as error:
            raise NotDone(f"{token_file} can't be read: {error.strerror or error}") from None
        if len(words) != 1:
            raise NotDone(f"{token_file} has {len(words)} words, wanted one, which is the token")
        request.add_header("Authorization", f"Bearer {words[0]}")
    return request, shown


def _lines(described: Sequence[Described], releases: Sequence[str], forgotten: int) -> list[str]:
    """The table, and below it what becomes of those that fail."""
    from tools.printing import counted, table

    if not described:
        return ["no client was seen yet"]
    columns = columns_of(described, releases)
    head = [
        "CLIENT ID",
        "ADDRESS",
        "SOFTWARE",
        "SPEAKS",
        "WROTE",
        "READ",
        "CONVERTED BYTES",
        "ANSWERED AS",
    ]
    rows = [
        [
            one["client_id"],
            one["address"],
            software_of(one),
            one["speaks"],
            formats_of(one["written"]),
            formats_of(one["read"]),
            one["converted_bytes"] or "",
            one["as_version"],
            *(one["verdicts"][column[0]]["outcome"] for column in columns),
        ]
        for one in described
    ]
    failing = [one for one in described if any(_fails(one, release) for release in releases)]
    lines = table([*head, *map(span_of, columns)], rows)
    for one in described:
        said = [*_reasons(one, columns), *one["remarks"], one["advice"]]
        if any(said):
            lines += ["", f"{one['client_id'] or '(no client id)'} at {one['address']}"]
            lines += [f"  {text}" for text in said if text]
    lines += ["", f"{counted(len(described), 'client')}, {len(failing)} failing"]
    if forgotten:
        lines.append(f"{forgotten} more were forgotten: only the last thousand are kept")
    return lines


def columns_of(described: Sequence[Described], releases: Sequence[str]) -> list[list[str]]:
    """Neighbouring releases with which all clients fare the same, together."""
    columns: list[list[str]] = []
    for release in releases:
        if columns and all(
            one["verdicts"][release] == one["verdicts"][columns[-1][0]] for one in described
        ):
            columns[-1].append(release)
        else:
            columns.append([release])
    return columns


def span_of(column: Sequence[str]) -> str:
    return column[0] if len(column) == 1 else f"{column[0]} TO {column[-1]}"


def _fails(one: Described, release: str) -> bool:
    return bool(one["verdicts"][release]["outcome"] == "fails")


def _reasons(one: Described, columns: Sequence[Sequence[str]]) -> list[str]:
    """What it meets, for each column in which it fails."""
    reasons = []
    for column in columns:
        verdict = one["verdicts"][column[0]]
        if verdict["outcome"] == "fails":
            sees = f" ({verdict['sees']})" if "sees" in verdict else ""
            reasons.append(f"{span_of(column)}: {verdict['request']}: {verdict['meets']}{sees}")
    return reasons


def software_of(one: Described) -> str:
    """As the client tells it; guessed from its client id with a question mark."""
    if one["software_name"]:
        return f"{one['software_name']} {one['software_version']}"
    library = one["library"]
    return "" if library is None else f"{library['name']} {library['release']}".strip() + "?"


def formats_of(sets: Sequence[dict[str, Any]]) -> str:
    """`2: gzip, zstd`: formats with their codecs."""
    by_format: dict[int, list[str]] = {}
    for one in sets:
        by_format.setdefault(one["format"], []).append(one["codec"])
    return "; ".join(f"{magic}: {', '.join(codecs)}" for magic, codecs in by_format.items())
