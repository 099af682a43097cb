"""`triglot pipeline`: the command line of the jobs.

It is read without Spark and Arrow: help and mistakes are answered in a tenth of a second. What a
job is called, and its flags, is in `cli_jobs`; how one is run in `cli_run`.
"""

from __future__ import annotations

import argparse
import os
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from pipeline.console.cli_flags import FORMATS, in_flags, pair
from pipeline.console.cli_jobs import JOBS
from pipeline.console.cli_run import run_doctor, run_job, tell_failure, unforeseen
from pipeline.errors import Failure, WrongUse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.console.cli_jobs import Job

DESCRIPTION = """\
  triglot pipeline doctor --from localhost:9092
  triglot pipeline audit --from old:9092
  triglot pipeline archive --from localhost:9092 --topic orders --to lake/orders
  triglot pipeline mirror --from old:9092 --to localhost:9092 --topic orders --state state

Bulk work on topics with Apache Spark: on this machine, where nothing else is to be set up, or with
--master or --remote on a cluster. Everything that can be wrong is checked before Spark starts.
`triglot pipeline COMMAND --help` has examples of each.
"""

DOCTOR = """\
  triglot pipeline doctor
  triglot pipeline doctor --from localhost:9092 --session
  triglot pipeline doctor --value avro --registry http://localhost:8081

Says in one line each what there is of all that a pipeline needs: Python, Java, Spark, Arrow, the
codecs, the record loops in C, and with --from a broker. With --session it also starts Spark and
lets it do something. With --value and --registry it looks for what columns of values need.
Nothing is changed.
"""

EXIT_CODES = """\
exit codes:
  0 done                          7 damaged data (--on-corrupt skip leaves it out)
  1 the reader of the output left 8 a codec's Python package is missing
  2 wrong use                     9 no Java, or one too old
  3 no broker answers            10 a Python package is missing
  4 no such topic                11 the destination refuses
  5 state of something else      12 Spark failed; the line names its log
  6 offsets are gone (--on-gap)  13 a table differs from its topics
  14 a value does not fit its schema (--dead-letters keeps it)
  15 data breaks a rule (audit --rules)
  130 Ctrl-C, 143 SIGTERM: stopped in order
"""


class Teaching(argparse.ArgumentParser):
    """Help begins with examples; a mistake is one line, and names what may have been meant."""

    def format_help(self) -> str:
        """As argparse has it, in another order."""
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        """Raises WrongUse in place of printing the usage."""
        raise WrongUse(f"{message} (see {self.prog} --help)")

    def flags(self) -> list[str]:
        """All that are known."""
        return [name for action in self._actions for name in action.option_strings]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is that of EXIT_CODES."""
    words = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # a service may be started with it closed
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    try:
        code = _answered(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read the output has gone; the interpreter would complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _answered(words: list[str]) -> int:
    """Raises BrokenPipeError."""
    as_json = "--json" in words
    try:
        return _run(words)
    except WrongUse as misuse:
        return tell_failure(WrongUse(in_flags(str(misuse))), as_json=as_json)
    except Failure as failure:
        return tell_failure(failure, as_json=as_json)
    except BrokenPipeError:
        raise
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 2
    except Exception as error:
        return tell_failure(unforeseen(error), as_json=as_json)


def _run(words: list[str]) -> int:
    arguments = _parsed(words)
    if arguments is None:
        return 2
    if arguments.command == "doctor":
        return run_doctor(arguments)
    return run_job(JOBS[arguments.command], arguments)


def _parsed(words: list[str]) -> argparse.Namespace | None:
    """None without a command: the help has been printed. Raises WrongUse; SystemExit after help."""
    parser, parsers = _parsers()
    if not words:
        parser.print_help()
        return None
    _refuse_unknown(words, parsers)
    arguments = parser.parse_args(words)
    if getattr(arguments, "once", False) and arguments.every_s is not None:
        raise WrongUse("--once and --every exclude each other")
    return arguments


def _parsers() -> tuple[Teaching, dict[str, Teaching]]:
    """The parser of all, and that of each command."""
    parser = Teaching(
        prog="triglot pipeline",
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parsers = {name: _add_job(commands, name, job) for name, job in JOBS.items()}
    parsers["doctor"] = _add_doctor(commands)
    return parser, parsers


def _refuse_unknown(words: list[str], parsers: Mapping[str, Teaching]) -> None:
    """Before anything that is missing is asked for. Raises WrongUse."""
    command = words[0]
    if command.startswith("-"):
        return
    if command not in parsers:
        hint = _nearest(command, list(parsers)) or f"known are {', '.join(parsers)}"
        raise WrongUse(f"there is no command {command}: {hint}")
    known = parsers[command].flags()
    for name in (word.partition("=")[0] for word in words if word.startswith("--")):
        if name not in known:
            hint = _nearest(name, known) or f"see triglot pipeline {command} --help"
            raise WrongUse(f"{command} does not know {name}: {hint}")


def _nearest(word: str, known: Sequence[str]) -> str | None:
    if not word.strip("-"):
        return None
    begun = [name for name in known if name.startswith(word)]
    close = get_close_matches(word, begun or known, n=1, cutoff=0.0 if begun else 0.6)
    return f"did you mean {close[0]}?" if close else None


def _add_job(commands: argparse._SubParsersAction[Teaching], name: str, job: Job) -> Teaching:
    parser = commands.add_parser(
        name,
        help=job.line,
        usage=f"triglot pipeline {name} [FLAGS]",
        description=job.description,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what to do")
    for flag in job.flags:
        flag.add_to(what)
    if any(flag.field == "every_s" for flag in job.flags):
        what.add_argument(
            "--once", action="store_true", help="do what is there now and end; the default"
        )
    told = parser.add_argument_group("what is told")
    told.add_argument(
        "--json",
        action="store_true",
        help="JSON lines on standard output: event is progress for each micro-batch, and in the "
        "last one done, stopped or error",
    )
    told.add_argument("--quiet", action="store_true", help="no progress")
    told.add_argument(
        "--report", metavar="FILE", help="plots and numbers of the run: FILE.html, .svg or .png"
    )
    told.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="answer there with metrics of the run, for Prometheus, as 127.0.0.1:9108",
    )
    if job.on_spark:
        _add_spark(parser)
    return parser


def _add_spark(parser: Teaching) -> None:
    where = parser.add_argument_group("where Spark runs")
    where.add_argument("--master", metavar="URL", help="a cluster; default local[*,4], here")
    where.add_argument("--remote", metavar="sc://HOST:PORT", help="Spark Connect")
    where.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=pair,
        help="a setting of Spark; may be given several times",
    )


def _add_doctor(commands: argparse._SubParsersAction[Teaching]) -> Teaching:
    parser = commands.add_parser(
        "doctor",
        usage="triglot pipeline doctor [FLAGS]",
        help="say what there is of all that a pipeline needs",
        description=DOCTOR,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--from", dest="servers", metavar="HOST:PORT", help="ask these brokers too")
    parser.add_argument(
        "--command-config", metavar="FILE", help="Kafka's client properties, for TLS and SASL"
    )
    parser.add_argument("--session", action="store_true", help="start Spark, and use it")
    parser.add_argument(
        "--value", choices=FORMATS, help="what columns of such values need; for Avro starts Spark"
    )
    parser.add_argument("--registry", metavar="URL", help="ask this schema registry too")
    parser.add_argument("--registry-config", metavar="FILE", help="properties of its client")
    parser.add_argument("--json", action="store_true", help="JSON, for machines")
    _add_spark(parser)
    return parser
