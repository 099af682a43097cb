"""Arguments that several commands have, and how a command refuses wrong ones."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.cluster import Cluster as Client
    from client.security import ClientSecurity
    from tools.cluster import Cluster
    from tools.selection import TopicSelection

Found = TypeVar("Found")

DONE, NOT_DONE = 0, 1
INT64_MAX = (1 << 63) - 1
PORT_MAX = 65_535
NARROWEST, COLUMNS = 11, 80
"""Columns that help is given at least, and those of what is no terminal."""


def address(text: str) -> tuple[str, int]:
    """HOST:PORT, where the host may be an IPv6 address in brackets."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
        raise argparse.ArgumentTypeError(f"wanted HOST:PORT, found '{text}'")
    return host.removeprefix("[").removesuffix("]"), int(port)


def listened(text: str) -> tuple[str, int]:
    """HOST:PORT of an address to listen on, where port 0 is one as well."""
    host, _, port = text.rpartition(":")
    return (address(f"{host}:1")[0], 0) if port == "0" else address(text)


def listened_range(text: str) -> tuple[str, int, int]:
    """HOST:PORT, or HOST:FIRST-LAST."""
    name, _, ports = text.rpartition(":")
    first, _, last = ports.partition("-")
    host, port = listened(f"{name}:{first}")
    if last and not (last.isdigit() and 0 < port <= int(last) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"the ports rise, as in 127.0.0.1:9192-9199, not '{text}'")
    return host, port, int(last or 0)


def advertised(text: str) -> tuple[str, int]:
    """HOST, or HOST:PORT."""
    return address(text) if ":" in text else (text, 0)


def seconds(text: str) -> float:
    """A time to wait."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise argparse.ArgumentTypeError(f"wanted a number of seconds above 0, found '{text}'")
    return found


def whole_number(text: str) -> int:
    """A count, an offset or an id."""
    if not text.isascii() or not text.isdecimal() or int(text) > INT64_MAX:
        raise argparse.ArgumentTypeError(f"wanted a whole number from 0 on, found '{text}'")
    return int(text)


def moment(text: str) -> int:
    """A time in ms since 1970, as `tools.times` reads it."""
    from tools.times import moment_ms

    return _read(moment_ms, text)


def duration(text: str) -> int:
    """A time in ms, as `tools.times` reads it."""
    from tools.times import duration_ms

    return _read(duration_ms, text)


def topic_selection(text: str) -> TopicSelection:
    """A topic, or some of its partitions."""
    from tools.selection import topic_selection as read

    return _read(read, text)


def named_value(text: str) -> tuple[str, str]:
    """NAME=VALUE; the value may be empty, and have more of these signs."""
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise argparse.ArgumentTypeError(f"wanted NAME=VALUE, found '{text}'")
    return name, value


def escaped(text: str) -> bytes:
    """Bytes, with escapes as `tools.escapes` reads them."""
    from tools.escapes import unescaped

    return _read(unescaped, text)


def _read(read: Callable[[str], Found], text: str) -> Found:
    try:
        return read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _help_columns() -> int:
    """Width of a line of help: the terminal's less two, as argparse has it."""
    try:
        columns = int(os.environ.get("COLUMNS", "0"))
    except ValueError:
        columns = 0
    if columns <= 0:
        try:
            columns = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns
        except (OSError, ValueError):
            columns = 0
    return max((columns or COLUMNS) - 2, NARROWEST)


class Parser(argparse.ArgumentParser):
    """One that knows the terminal's width. argparse would ask `shutil`, with each argument that is
    added, and that brings libraries of compression into the memory of a broker: 0.6 MiB."""

    def __init__(self, *, formatter_class: Any = argparse.HelpFormatter, **arguments: Any) -> None:
        wide = partial(formatter_class, width=_help_columns())
        super().__init__(formatter_class=wide, **arguments)


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    line: str,
    description: str,
) -> argparse.ArgumentParser:
    """A command's own command, with --json."""
    parser = actions.add_parser(
        name,
        help=line,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="JSON, for machines")
    return parser


def add_cluster_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    line: str,
    description: str,
) -> argparse.ArgumentParser:
    """The same for a question to a running broker."""
    parser = add_action(actions, name, line, description)
    _add_cluster(parser)
    return parser


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """What `add_cluster_action` adds, for a command without actions."""
    parser.add_argument("--json", action="store_true", help="JSON, for machines")
    _add_cluster(parser)


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap",
        type=address,
        default=("127.0.0.1", 9092),
        metavar="HOST:PORT",
        help="a broker to ask; default 127.0.0.1:9092",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long to wait for each answer; default 10",
    )
    add_command_config(parser)


def complete_topics(action: argparse.Action) -> None:
    """Have a shell complete the names of topics there."""

    def names(parsed_args: argparse.Namespace, **_: object) -> list[str]:
        from tools.topic_names import topic_names

        host, port = parsed_args.bootstrap
        return topic_names(host, port, lambda: security_of(parsed_args))

    action.completer = names  # type: ignore[attr-defined]


def add_command_config(parser: argparse.ArgumentParser) -> None:
    """The file that says how to prove who one is to a broker."""
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="client.properties as Kafka's tools take it: security.protocol, sasl.*, ssl.*",
    )


def security_of(arguments: argparse.Namespace) -> ClientSecurity | None:
    """What `--command-config` says; None without. Raises WrongUse."""
    if arguments.command_config is None:
        return None
    from client.security import read_client_security

    return read_client_security(arguments.command_config)


def run_on_cluster(
    action: Callable[[Cluster, argparse.Namespace], None],
    arguments: argparse.Namespace,
    *,
    client_id: bytes,
) -> int:
    """Run an action of `add_cluster_action`; what stops it becomes one sentence, or nothing if the
    reader has gone. The exit code."""

    def run() -> None:
        from tools.cluster import Cluster

        host, port = arguments.bootstrap
        timeout_s, security = arguments.timeout, security_of(arguments)
        with Cluster(
            host, port, timeout_s=timeout_s, client_id=client_id, security=security
        ) as cluster:
            action(cluster, arguments)

    return _exit_code(run)


def run_on_client(
    action: Callable[[Client, argparse.Namespace], None],
    arguments: argparse.Namespace,
    *,
    client_id: bytes,
) -> int:
    """The same for an action that moves records, and goes on over lost connections and leaders that
    change."""

    def run() -> None:
        from client.cluster import Cluster
        from protocol.client import written

        servers = written(*arguments.bootstrap)
        timeout_s, security = arguments.timeout, security_of(arguments)
        with Cluster(
            servers, timeout_s=timeout_s, client_id=client_id, security=security
        ) as client:
            action(client, arguments)

    return _exit_code(run)


def run_alone(run: Callable[[], object]) -> int:
    """The same for what asks no broker."""
    return _exit_code(run)


def _exit_code(run: Callable[[], object]) -> int:
    from client.errors import Failure
    from tools.errors import NotDone
    from tools.printing import discard_output, say

    try:
        run()
        sys.stdout.flush()  # at the end of the process nobody would catch what it meets
    except BrokenPipeError:
        discard_output()
        return NOT_DONE
    except (NotDone, Failure) as error:
        say(f"triglot: {error}", sys.stderr)
        return NOT_DONE
    except KeyboardInterrupt:
        say("triglot: interrupted", sys.stderr)
        return NOT_DONE
    return DONE


def refuse(sentence: str, *, code: int) -> int:
    """Say on standard error why nothing was done; the exit code."""
    print(f"triglot: {sentence}", file=sys.stderr)
    return code
