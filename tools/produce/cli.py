"""`triglot produce`: the arguments and the exit codes; `tools.produce.actions` does the work."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tools.arguments import (
    add_cluster_arguments,
    complete_topics,
    escaped,
    moment,
    named_value,
    refuse,
    run_on_client,
    whole_number,
)

if TYPE_CHECKING:
    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CLIENT_ID = b"triglot-produce"
WRONG_USE = 2
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

PRODUCE_HELP = """\
Write records to a topic that exists. The broker is a running one, triglot or Apache Kafka of any
age; each gets the newest record format that it takes. Records count as written when all replicas
have them (acks=all). Where an answer is lost they are sent again, and none is stored twice; a Kafka
before 0.11 could not tell, so there it ends, and says that it does not know.

  echo hello | triglot produce orders
  triglot produce orders --key-separator : lines.txt
  triglot produce orders --key customer-7 --header source=shop --input files picture.png
  triglot consume orders --json --until-end | triglot produce copies --input json

--input lines (the default): each line is a record. --input json: each line is an object with any of
key, value, headers, partition and timestamp_ms, as `triglot consume --json` writes them;
key_base64 and value_base64 are bytes. --input files: each file is a record.

What stands on standard input is written as it comes: when no more is waiting, what was read is
sent. Records with the same key go to the same partition, the one that Kafka's own producer takes;
records without go to one partition for as long as a batch lasts, and then to the next.

Exit code 0: all is written. 1: not all, and the sentence says how much. 2: the command line is
wrong.
"""


def add_commands(commands: Commands) -> None:
    """Add `produce` to the command line's."""
    produce = commands.add_parser(
        "produce",
        help="write records to a topic: lines, JSON, files",
        description=PRODUCE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    produce.set_defaults(run=run_produce)
    complete_topics(produce.add_argument("topic", metavar="TOPIC"))
    produce.add_argument(
        "file", nargs="*", metavar="FILE", help="default '-', which is standard input"
    )
    produce.add_argument("--input", choices=("lines", "json", "files"), default="lines")
    keys = produce.add_mutually_exclusive_group()
    keys.add_argument("--key", type=escaped, metavar="KEY", help="of all records")
    keys.add_argument(
        "--key-separator",
        type=escaped,
        metavar="TEXT",
        help=r"what stands between key and value in a line, as in : or \t",
    )
    produce.add_argument(
        "--header",
        type=named_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of all records; may be given several times",
    )
    produce.add_argument("--partition", type=whole_number, metavar="N", help="for all records")
    produce.add_argument(
        "--timestamp",
        type=moment,
        metavar="TIME",
        help="of all records, as 2026-01-31T12:00:00Z or ms since 1970; default now",
    )
    produce.add_argument("--codec", choices=CODECS, default="none", help="default none")
    produce.add_argument(
        "--empty-is-null",
        action="store_true",
        help="an empty key or value of a line is none: a record that deletes its key",
    )
    produce.add_argument(
        "--progress",
        action="store_true",
        help="say on standard error how far it is, also where that is no terminal",
    )
    add_cluster_arguments(produce)


def run_produce(arguments: Arguments) -> int:
    """`triglot produce`. The exit code."""
    fault = ""
    if arguments.input == "files" and not arguments.file:
        fault = "--input files wants the names of files"
    elif arguments.input != "lines" and (arguments.key_separator or arguments.empty_is_null):
        fault = "--key-separator and --empty-is-null are about lines"
    elif arguments.key_separator == b"":
        fault = "--key-separator is empty"
    if fault:
        return refuse(fault, code=WRONG_USE)
    from tools.produce.actions import run

    return run_on_client(run, arguments, client_id=CLIENT_ID)
