"""`triglot tap`: the arguments and the exit codes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tools.arguments import (
    DONE,
    NOT_DONE,
    add_action,
    add_cluster_action,
    refuse,
    run_alone,
    run_on_cluster,
)
from tools.proxy_arguments import add_proxy_arguments, fault_of_addresses

if TYPE_CHECKING:
    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CLIENT_ID = b"triglot-tap"
WRONG_USE = 2

TAP_HELP = """\
Stand between clients and a broker, and tell what each says, request by request: any client, any
broker of any age, every version of every API that clients use up to Kafka 4.4.

  triglot tap listen --in-front-of 127.0.0.1:9092 --listen 127.0.0.1:9192
  triglot tap listen --in-front-of kafka:9092 --client 'billing-*' --api Produce --save talk.jsonl
  triglot tap show talk.jsonl
  triglot tap replay talk.jsonl --bootstrap 127.0.0.1:9092

Exit code 0: done. 1: it could not be done. 2: the command line is wrong.
"""

LISTEN_HELP = """\
Clients are pointed at this address in place of the broker's, and stay on it for all brokers of the
cluster: in answers the addresses are those of the tap. All else passes as it is.

  12:00:00.123 #1 rdkafka > Produce v7 {acks: -1, ... records: <2 records, lz4, 120 bytes>}
  12:00:00.125 #1 rdkafka < Produce v7 after 1.9 ms {responses: [... error_code: NONE ...]}

#1 is the connection. Errors are told by their names, topic ids by the topic's name once Metadata
was asked for, records by their number; passwords and tokens not at all. A file of --save has the
frames themselves, records too, but for those with secrets.

In front of a listener with TLS it wants --command-config; clients may speak plaintext with it all
the same, or TLS with --certificate. Logins by SASL pass through it. SIGTERM and Ctrl-C end it.

  triglot tap listen --in-front-of kafka:9093 --command-config client.properties
"""

SHOW_HELP = """\
Print a conversation that `triglot tap listen --save` has kept.
"""

REPLAY_HELP = """\
Send the requests of a saved conversation again, one after the other, each connection's over one of
its own, and compare the answers. Requests have their effects again: records are written once more,
but for those of idempotent producers, which the broker knows.
What a broker does not offer in that version is told, and not sent; logins are made as
--command-config says, those of the conversation are left out.

  = Heartbeat v4 {error_code: NONE}               the same answer
  ! Produce v9 then {...} now {...}               another one
"""


def add_commands(commands: Commands) -> None:
    """Add `tap` to the command line's."""
    tap = commands.add_parser(
        "tap",
        help="overhear clients and a broker: what they say, request by request",
        description=TAP_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tap.set_defaults(run=run_tap)
    actions = tap.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_listen(add_action(actions, "listen", "stand in front of a broker", LISTEN_HELP))
    shown = add_action(actions, "show", "print a saved conversation", SHOW_HELP)
    shown.add_argument("file", metavar="FILE")
    replayed = add_cluster_action(
        actions, "replay", "send saved requests again, compare the answers", REPLAY_HELP
    )
    replayed.add_argument("file", metavar="FILE")
    for parser in (shown, replayed):
        _add_full(parser)


def _add_listen(parser: argparse.ArgumentParser) -> None:
    add_proxy_arguments(parser)
    parser.add_argument(
        "--client", action="append", default=[], metavar="PATTERN", help="only these client ids"
    )
    parser.add_argument(
        "--api", action="append", default=[], metavar="NAME", help="only these, as in Produce"
    )
    parser.add_argument("--save", metavar="FILE", help="keep the conversation in a new file")
    _add_full(parser)


def _add_full(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="do not cut long texts")


def run_tap(arguments: Arguments) -> int:
    """`triglot tap`. The exit code."""
    if arguments.action == "listen":
        return _listen(arguments)
    from tools.tap import actions

    if arguments.action == "show":
        return run_alone(lambda: actions.run_show(arguments))
    return run_on_cluster(actions.run_replay, arguments, client_id=CLIENT_ID)


def _listen(arguments: Arguments) -> int:
    import asyncio
    from contextlib import ExitStack
    from pathlib import Path

    from broker import logs
    from client.errors import WrongUse
    from tools.proxy_arguments import connect_of, context_of
    from tools.tap.actions import fault_of_apis
    from tools.tap.listening import listen

    fault = fault_of_apis(arguments.api) or fault_of_addresses(arguments)
    if fault:
        return refuse(fault, code=WRONG_USE)
    logs.configure(level="warning", as_json=arguments.json)
    try:
        connect, tls = connect_of(arguments), context_of(arguments)
    except WrongUse as error:
        return refuse(str(error), code=WRONG_USE)
    with ExitStack() as files:
        try:
            saved = None
            if arguments.save is not None:
                saved = files.enter_context(Path(arguments.save).open("x", encoding="utf-8"))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            return refuse(f"--save {arguments.save}: {why}", code=NOT_DONE)
        try:
            asyncio.run(listen(arguments, saved, connect=connect, tls=tls))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            return refuse(f"can't listen: {why}", code=NOT_DONE)
    return DONE
