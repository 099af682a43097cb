"""The command line: `triglot serve`, `version`, `config`, `topics`, `configs`, `offsets`,
`produce`, `consume`, `tap`, `health`, `clients`, `faults`, `groups`, `rebalance`, `transactions`,
`metadata`, `users`, `acls`, `certs`, `check`, `dump`, `repair`, `completion`, `pipeline`.

Only the module of the command that is asked for is imported, and only what that needs when it runs;
`serve` has a start-up time to keep.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from broker._version import VERSION
from tools.arguments import Parser, refuse, run_alone

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

MODULES = {
    "serve": ".serve",
    "topics": ".topics.cli",
    "configs": ".configs.cli",
    "offsets": ".offsets",
    "produce": ".produce.cli",
    "consume": ".consume.cli",
    "tap": ".tap.cli",
    "health": ".health",
    "clients": ".clients",
    "faults": ".faults",
    "groups": ".groups.cli",
    "rebalance": ".rebalance",
    "transactions": ".transactions.cli",
    "metadata": ".metadata.cli",
    "users": ".users.cli",
    "acls": ".acls.cli",
    "certs": ".certs",
    "check": ".inspection",
    "dump": ".inspection",
    "repair": ".inspection",
    "completion": ".completion",
}
"""Where the arguments of each command are, in this package; `add_commands` says what runs it."""

ASKED_BY_A_SHELL = "_ARGCOMPLETE"
"""In the environment of a command that a shell asks for completions."""
PIPELINE_NEEDS = ("numpy", "py4j", "pyarrow", "pyspark")
"""The packages that come with the extra `pipeline`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 when it did what it says, 1 when it could not, 2 when the
    command line is wrong."""
    words = sys.argv[1:] if argv is None else list(argv)
    if ASKED_BY_A_SHELL in os.environ:
        _complete()
    if words[:1] == ["pipeline"]:
        return _pipeline(words[1:])
    parser = _parser(words[0] if words else "")
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.print_help()
        return 2
    code: int = arguments.run(arguments)
    return code


def _parser(command: str) -> argparse.ArgumentParser:
    """The parser of one command; of all where there is none of this name, for their list."""
    parser: argparse.ArgumentParser = Parser(
        prog="triglot",
        description="A single-node broker for Apache Kafka clients.",
        epilog="The documentation is in docs/README.md of the checkout; `make site` there makes "
        "it a site that can be searched.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    config = commands.add_parser("config", help="list, document or sample the settings")
    config.add_argument("what", choices=("keys", "docs", "sample"))
    config.set_defaults(run=_config)
    # In the order of the table, each once.
    modules = [MODULES[command]] if command in MODULES else dict.fromkeys(MODULES.values())
    if command not in ("version", "config"):
        for module in modules:
            import_module(module, __package__).add_commands(commands)
    commands.add_parser(
        "pipeline",
        help="archive, replay, mirror and audit topics with Apache Spark",
        add_help=False,
    )
    return parser


def _complete() -> None:
    """Tell a shell what may come next; that ends the process."""
    from tools.completion import answer

    answer(_parser(""))


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

    return run_alone(lambda: config_main([arguments.what]))
