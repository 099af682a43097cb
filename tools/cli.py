"""The command line: `triglot serve`, `version`, `config`, `health`, `groups`, `metadata`, `check`,
`dump`, `repair`, `pipeline`.

Only what a command needs is imported when it runs; `serve` has a start-up time to keep.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from broker._version import VERSION
from tools import inspection as cli_storage
from tools.groups import cli as cli_groups
from tools.metadata import cli as cli_metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

PIPELINE_NEEDS = ("numpy", "py4j", "pyarrow", "pyspark")
"""The packages that come with the extra `pipeline`."""

SERVE_HELP = """\
Start the broker.

  triglot serve                                   on 127.0.0.1:9092, data in ./data
  triglot serve --listen 127.0.0.1:0              on any free port; the ready line names it
  triglot serve --config server.properties        with the settings of an Apache Kafka broker
  triglot serve --set log.retention.hours=24      one setting, over all others

Settings come from the defaults, then the properties file, then TRIGLOT_ environment variables
(TRIGLOT_LOG_RETENTION_HOURS=24), then --set. `triglot config keys` lists them. SIGTERM and Ctrl-C
finish what is in flight and stop cleanly.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 when it did what it says, 1 when it could not, 2 when the
    command line is wrong."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["pipeline"]:
        return _pipeline(words[1:])
    parser = _parser()
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.print_help()
        return 2
    command = {
        "serve": _serve,
        "version": _version,
        "config": _config,
        "health": _health,
        "groups": cli_groups.run_groups,
        "metadata": cli_metadata.run_metadata,
        "check": cli_storage.run_check,
        "dump": cli_storage.run_dump,
        "repair": cli_storage.run_repair,
    }[arguments.command]
    return command(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="triglot", description="A single-node broker for Apache Kafka clients."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="start the broker",
        description=SERVE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument("--config", metavar="FILE", help="a server.properties file")
    serve.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="one setting; may be given several times",
    )
    serve.add_argument("--data", metavar="DIR", help="data directory (log.dirs); default ./data")
    serve.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="address to listen on (listeners); default 127.0.0.1:9092; port 0 picks a free one",
    )
    serve.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    serve.add_argument(
        "--json", action="store_true", help="log lines and the ready line as JSON, for machines"
    )
    commands.add_parser("version", help="print the version")
    config = commands.add_parser("config", help="list, document or sample the settings")
    config.add_argument("what", choices=("keys", "docs", "sample"))
    health = commands.add_parser(
        "health",
        help="ask a running broker for its API versions; exit 0 if it answers",
        description="Connects, asks for the API versions and exits 0 if they come back in time.",
    )
    health.add_argument("--host", default="127.0.0.1")
    health.add_argument("--port", type=int, default=9092)
    health.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS")
    cli_groups.add_commands(commands)
    cli_metadata.add_commands(commands)
    cli_storage.add_commands(commands)
    commands.add_parser(
        "pipeline",
        help="archive, replay, mirror and audit topics with Apache Spark",
        add_help=False,
    )
    return parser


def _pipeline(words: list[str]) -> int:
    """The pipeline, which has exit codes of its own; 10 is a package that is missing."""
    try:
        from pipeline.cli import main as run

        return run(words)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in PIPELINE_NEEDS:
            raise
        needs = "the pipeline needs pip install triglot[pipeline]"
        return _refuse(f"{needs} (there is no {missing.name})", code=10)


def _serve(arguments: argparse.Namespace) -> int:
    from broker import logs
    from broker.server import StartRefused, serve
    from config import ConfigError, load

    logs.configure(level=arguments.log_level, as_json=arguments.json)
    overrides: dict[str, str] = {}
    for item in arguments.overrides:
        key, separator, value = item.partition("=")
        if not separator:
            return _refuse(f"--set wants KEY=VALUE, found '{item}'", code=2)
        overrides[key.strip()] = value.strip()
    if arguments.data is not None:
        overrides["log.dirs"] = arguments.data
    if arguments.listen is not None:
        host, separator, port = arguments.listen.rpartition(":")
        if not separator or not port.isdigit():
            return _refuse(f"--listen wants HOST:PORT, found '{arguments.listen}'", code=2)
        overrides["listeners"] = f"PLAINTEXT://{host}:{port}"
    try:
        import os

        settings = load(properties_file=arguments.config, environ=os.environ, overrides=overrides)
    except ConfigError as error:
        return _refuse(str(error), code=2)
    except OSError as error:
        return _refuse(f"can't read {arguments.config}: {error.strerror}", code=2)
    try:
        serve(settings, as_json=arguments.json)
    except StartRefused as refusal:
        return _refuse(str(refusal), code=1)
    return 0


def _version(arguments: argparse.Namespace) -> int:
    print(f"triglot {VERSION}")
    return 0


def _config(arguments: argparse.Namespace) -> int:
    from config.__main__ import main as config_main

    return config_main([arguments.what])


def _health(arguments: argparse.Namespace) -> int:
    import socket
    import struct

    request = struct.pack(">ihhih6s", 16, 18, 0, 1, 6, b"health")
    try:
        with socket.create_connection(
            (arguments.host, arguments.port), timeout=arguments.timeout
        ) as connection:
            connection.sendall(request)
            head = b""
            while len(head) < 10:
                piece = connection.recv(4096)
                if not piece:
                    return _refuse("the broker closed the connection", code=1)
                head += piece
    except OSError as error:
        return _refuse(f"no answer from {arguments.host}:{arguments.port}: {error}", code=1)
    size, correlation_id, error_code = struct.unpack_from(">iih", head)
    if size < 6 or correlation_id != 1 or error_code != 0:
        return _refuse("what answers there does not speak the Kafka protocol", code=1)
    print("healthy")
    return 0


def _refuse(sentence: str, *, code: int) -> int:
    print(f"triglot: {sentence}", file=sys.stderr)
    return code
