"""`triglot consume`: the arguments and the exit codes; `tools.consume.actions` does the work."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tools.arguments import (
    add_cluster_arguments,
    complete_topics,
    moment,
    refuse,
    run_on_client,
    topic_selection,
    whole_number,
)

if TYPE_CHECKING:
    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CLIENT_ID = b"triglot-consume"
WRONG_USE = 2

CONSUME_HELP = r"""Print the records of topics. The broker is a running one, triglot or Apache
Kafka of any age.

  triglot consume orders                                    from the start, and wait for more
  triglot consume orders --from-end                         only what comes from now on
  triglot consume orders:0 --from-offset 42 --count 1
  triglot consume orders --from-time 2026-01-31T12:00:00Z --until-end
  triglot consume orders --last 10 --format '%p@%o %k = %s\n' --until-end
  triglot consume orders --json --until-end > orders.jsonl
  triglot consume orders --group billing --until-end        from where the group is

A format has

  %s value      %k key      %h headers      %t topic      %p partition      %o offset
  %T timestamp in ms        %D the same as a date         %S, %K bytes of value and key, -1 for none
  %% a percent sign         \n \t \r \0 \\ \xNN

Without one it is '%s\n'. What is not there is printed as --null says.

Records of transactions are printed when they are committed, and never if they are aborted. The
order is that of offsets within a partition. No group is joined: --group only says where to begin,
and --commit tells the group how far it has been read, which a broker takes of a group without
members.

Exit code 0: done. 1: it could not be done, or was interrupted. 2: the command line is wrong.
"""


def add_commands(commands: Commands) -> None:
    """Add `consume` to the command line's."""
    consume = commands.add_parser(
        "consume",
        help="print the records of topics",
        description=CONSUME_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    consume.set_defaults(run=run_consume)
    complete_topics(
        consume.add_argument("topic", nargs="+", type=topic_selection, metavar="TOPIC[:P,P]")
    )
    _add_bounds(consume)
    consume.add_argument("--format", metavar="FORMAT", help=r"how to print a record; '%%s\n'")
    consume.add_argument(
        "--null", default="", metavar="TEXT", help="printed for what is not there; default nothing"
    )
    consume.add_argument(
        "--uncommitted",
        action="store_true",
        help="print records of transactions that are open or aborted, too",
    )
    consume.add_argument(
        "--on-corrupt",
        choices=("fail", "skip"),
        default="fail",
        help="a batch that is damaged ends it, or is left out and told at the end",
    )
    consume.add_argument(
        "--progress",
        action="store_true",
        help="say on standard error how far it is, also where that is no terminal",
    )
    add_cluster_arguments(consume)


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--from-start", action="store_true", help="the start of the log; default")
    begin.add_argument("--from-end", action="store_true", help="the end of the log")
    begin.add_argument("--from-offset", type=whole_number, metavar="N")
    begin.add_argument(
        "--from-time",
        type=moment,
        metavar="TIME",
        help="the first record at or after 2026-01-31T12:00:00Z (UTC where no zone is named), or "
        "ms since 1970",
    )
    begin.add_argument(
        "--last", type=whole_number, metavar="N", help="the last so many offsets of each partition"
    )
    parser.add_argument(
        "--group",
        metavar="GROUP",
        help="from where this group is; where it has committed nothing, as said by --from-...",
    )
    parser.add_argument(
        "--commit",
        action="store_true",
        help="commit for --group what was printed, every few seconds and at the end",
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument(
        "--until-end", action="store_true", help="up to where the logs end now; else wait for more"
    )
    end.add_argument("--until-offset", type=whole_number, metavar="N", help="before this offset")
    end.add_argument(
        "--until-time",
        type=moment,
        metavar="TIME",
        help="before the first record at or after this time; up to the end if there is none",
    )
    parser.add_argument("--count", type=whole_number, metavar="N", help="at most so many records")


def run_consume(arguments: Arguments) -> int:
    """`triglot consume`. The exit code."""
    if arguments.commit and arguments.group is None:
        return refuse("--commit wants a --group", code=WRONG_USE)
    if arguments.json and arguments.format is not None:
        return refuse("--json is a format: leave --format away", code=WRONG_USE)
    from tools.consume.format import renderer

    try:
        arguments.renderer = renderer(arguments.format, null=arguments.null, as_json=arguments.json)
    except ValueError as error:
        return refuse(f"--format: {error}", code=WRONG_USE)
    from tools.consume.actions import run

    return run_on_client(run, arguments, client_id=CLIENT_ID)
