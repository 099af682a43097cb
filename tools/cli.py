"""The command line: `triglot serve`, `version`, `config`, `health`, `groups`, `transactions`,
`metadata`, `users`, `acls`, `certs`, `check`, `dump`, `repair`, `pipeline`.

Only what a command needs is imported when it runs; `serve` has a start-up time to keep.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from broker._version import VERSION
from tools import certs, health, inspection, serve
from tools.acls import cli as acls
from tools.arguments import Parser, refuse
from tools.groups import cli as groups
from tools.metadata import cli as metadata
from tools.transactions import cli as transactions
from tools.users import cli as users

if TYPE_CHECKING:
    from collections.abc import Sequence

PIPELINE_NEEDS = ("numpy", "py4j", "pyarrow", "pyspark")
"""The packages that come with the extra `pipeline`."""


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
        "serve": serve.run_serve,
        "version": _version,
        "config": _config,
        "health": health.run_health,
        "groups": groups.run_groups,
        "transactions": transactions.run_transactions,
        "metadata": metadata.run_metadata,
        "users": users.run_users,
        "acls": acls.run_acls,
        "certs": certs.run_certs,
        "check": inspection.run_check,
        "dump": inspection.run_dump,
        "repair": inspection.run_repair,
    }[arguments.command]
    return command(arguments)


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(
        prog="triglot", description="A single-node broker for Apache Kafka clients."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    serve.add_command(commands)
    commands.add_parser("version", help="print the version")
    config = commands.add_parser("config", help="list, document or sample the settings")
    config.add_argument("what", choices=("keys", "docs", "sample"))
    health.add_command(commands)
    groups.add_commands(commands)
    transactions.add_commands(commands)
    metadata.add_commands(commands)
    users.add_commands(commands)
    acls.add_commands(commands)
    certs.add_command(commands)
    inspection.add_commands(commands)
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
        return refuse(f"{needs} (there is no {missing.name})", code=10)


def _version(arguments: argparse.Namespace) -> int:
    print(f"triglot {VERSION}")
    return 0


def _config(arguments: argparse.Namespace) -> int:
    from config.__main__ import main as config_main

    return config_main([arguments.what])
