"""`triglot metadata`: what a cluster's metadata say, asked of a running controller or read from its
files.

`tools.metadata` does the work; here are the arguments and the exit codes.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tools.arguments import add_action, add_command_config, address, seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

DONE, NOT_DONE = 0, 1
DEFAULT_TIMEOUT_S = 15.0

METADATA_HELP = """\
Look at the metadata of a cluster: topics with their partitions and settings, quotas, users, access
control, features, registrations. They are the records of the log __cluster_metadata; `follow` gets
them from a running controller, `show` reads the files.

  triglot metadata follow 127.0.0.1:9093
  triglot metadata show data

Exit code 0: done. 1: it could not be done. 2: the command line is wrong.
"""

FOLLOW_HELP = """\
Print the whole state, then each change as it happens, with its offset in the log. Ctrl-C ends it.

  triglot metadata follow 127.0.0.1:9093
  triglot metadata follow --once --json 127.0.0.1:9093      the state as JSON, and no more
  triglot metadata follow --dir copy 127.0.0.1:9093         keep a copy, to go on from later

The address is that of a controller's listener, not the one that clients use. triglot opens one with

  listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
  controller.listener.names=CONTROLLER

A controller of Apache Kafka (3.3 or later) is followed as well. --command-config names a file with
Kafka's client properties where the listener has TLS or SASL.

Whoever is far behind is given a snapshot first. It is downloaded in pieces; after a lost connection
or a restart with the same --dir it goes on where it was. With --dir the files of the controller are
kept there: the snapshot byte for byte, and the log after it; `triglot metadata show` reads them.
Keys of users and passwords among the settings are not printed.
"""

SHOW_HELP = """\
Print what the metadata log of a data directory says. Nothing is changed; the broker may be running.

  triglot metadata show data              a data directory of triglot or Apache Kafka
  triglot metadata show copy              what `triglot metadata follow --dir copy` keeps

Which cluster and node it is of, how far the log goes and from which snapshot, then topics,
settings, quotas, users (never their keys), access control, producer ids and registrations. A topic
is one line; a partition has one of its own if it is not as the first of its topic.
"""


def add_commands(commands: Commands) -> None:
    """Add `metadata` to the command line's."""
    metadata = commands.add_parser(
        "metadata",
        help="follow the metadata of a running controller, or show those of a directory",
        description=METADATA_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    metadata.set_defaults(run=run_metadata)
    actions = metadata.add_subparsers(dest="action", metavar="ACTION", required=True)
    follow = add_action(actions, "follow", "print the state and each change", FOLLOW_HELP)
    follow.add_argument("address", type=address, metavar="HOST:PORT", help="a controller")
    follow.add_argument("--dir", metavar="DIR", help="keep snapshot and log in this folder")
    follow.add_argument("--once", action="store_true", help="print the state and end")
    follow.add_argument(
        "--timeout",
        type=seconds,
        default=DEFAULT_TIMEOUT_S,
        metavar="SECONDS",
        help=f"how long to wait for a connection or an answer; default {DEFAULT_TIMEOUT_S:g}",
    )
    add_command_config(follow)
    show = add_action(actions, "show", "print what the files of a directory say", SHOW_HELP)
    show.add_argument("path", metavar="DIR", help="a data directory")


def run_metadata(arguments: Arguments) -> int:
    """`triglot metadata`: what stops it becomes one sentence, or nothing if the reader has gone."""
    from client.errors import Failure
    from storage.errors import DataDirectoryError
    from tools.errors import NotDone
    from tools.metadata import actions
    from tools.printing import discard_output, say

    action: Callable[[Arguments], None] = {
        "follow": actions.run_follow,
        "show": actions.run_show,
    }[arguments.action]
    try:
        action(arguments)
    except BrokenPipeError:
        discard_output()
        return NOT_DONE
    except (NotDone, Failure, DataDirectoryError) as error:
        say(f"triglot: {error}", sys.stderr)
        return NOT_DONE
    except OSError as error:
        say(f"triglot: {error.filename or 'disk'}: {error.strerror or error}", sys.stderr)
        return NOT_DONE
    except KeyboardInterrupt:
        return DONE if arguments.action == "follow" else NOT_DONE
    return DONE
