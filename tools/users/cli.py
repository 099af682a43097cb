"""`triglot users`: the arguments and the exit codes; `tools.users.actions` does the work."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tools.arguments import add_cluster_action, run_on_cluster, whole_number
from tools.users.mechanisms import MECHANISMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster import Cluster

    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CLIENT_ID = b"triglot-users"
DEFAULT_ITERATIONS = 8192

USERS_HELP = """\
Users who authenticate by SCRAM: make them, change their passwords, remove them. They are the same
users that kafka-configs --entity-type users knows. The broker is a running one, triglot or Apache
Kafka (2.7 or later).

  triglot users add alice                                  asks for the password
  triglot users add alice --password-file alice.password
  triglot users list
  triglot users remove alice

Who may do that on a broker with access rules: whoever may alter the cluster. --command-config names
a file with Kafka's client properties for TLS and SASL.

Exit code 0: done. 1: it could not be done. 2: the command line is wrong.
"""

ADD_HELP = """\
Make a user, or give one another password. There is no way to give it on the command line, where
every user of the machine can read it: it is asked for on the terminal, or it is the first line of
--password-file, or of standard input where that is no terminal.

  triglot users add alice
  triglot users add alice --password-file alice.password
  triglot users add alice --mechanism SCRAM-SHA-512 < alice.password

The password is salted here and never sent. Without --mechanism the user gets both mechanisms.
Clients that are connected stay so until they authenticate anew (connections.max.reauth.ms).
"""

REMOVE_HELP = """\
Take a user's credentials away, all of them or those of one mechanism. Access rules for the user
stay: `triglot acls remove --principal NAME` removes them.
"""

LIST_HELP = """\
One line per user and mechanism. Nobody can be told a password, or what is kept of it.
"""


def add_commands(commands: Commands) -> None:
    """Add `users` to the command line's."""
    users = commands.add_parser(
        "users",
        help="make, list and remove users who authenticate by SCRAM",
        description=USERS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    users.set_defaults(run=run_users)
    actions = users.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = add_cluster_action(actions, "add", "make a user, or change the password", ADD_HELP)
    add.allow_abbrev = False  # --password is no --password-file
    _add_name(add)
    add.add_argument("--password-file", metavar="FILE", help="its first line is the password")
    add.add_argument(
        "--iterations",
        type=whole_number,
        default=DEFAULT_ITERATIONS,
        metavar="N",
        help=f"of the salting, 4096 to 16384; default {DEFAULT_ITERATIONS}",
    )
    _add_mechanism(add)
    remove = add_cluster_action(actions, "remove", "remove a user", REMOVE_HELP)
    _add_name(remove)
    _add_mechanism(remove)
    add_cluster_action(actions, "list", "list the users", LIST_HELP)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the user, without User: in front")


def _add_mechanism(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mechanism",
        choices=MECHANISMS,
        action="append",
        help="only this one; may be given twice; default both",
    )


def run_users(arguments: Arguments) -> int:
    """`triglot users`. The exit code."""
    from tools.users import actions

    action: Callable[[Cluster, Arguments], None] = {
        "add": actions.run_add,
        "remove": actions.run_remove,
        "list": actions.run_list,
    }[arguments.action]
    return run_on_cluster(action, arguments, client_id=CLIENT_ID)
