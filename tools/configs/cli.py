"""`triglot configs`: the arguments and the exit codes; `tools.configs.actions` does the work."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tools.arguments import add_cluster_action, complete_topics, named_value, refuse, run_on_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster import Cluster

    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CLIENT_ID = b"triglot-configs"
WRONG_USE = 2
KINDS = ("topic", "broker", "broker-logger", "client-metrics", "group")

CONFIGS_HELP = """\
Settings of topics, brokers, groups and others: what they are, where each comes from, and changes.
The broker is a running one, triglot or Apache Kafka (0.11 or later; to change what is not a topic,
2.3 or later).

  triglot configs describe topic orders
  triglot configs describe broker 1 --all
  triglot configs alter topic orders --set retention.ms=3600000 --unset cleanup.policy
  triglot configs alter broker '' --set log.retention.hours=24

A broker is named by its id; '' stands for all brokers.

Exit code 0: done. 1: it could not be done. 2: the command line is wrong.
"""

DESCRIBE_HELP = """\
The settings that were made for this resource; with --all, or by name, those that hold for it,
wherever they come from. A secret is shown as '...'.

  triglot configs describe topic orders
  triglot configs describe topic orders retention.ms retention.bytes
  triglot configs describe broker 1 --all
"""

ALTER_HELP = """\
Set some settings of a resource, and take others back to what holds without them. A broker refuses
all of them if it refuses one.

  triglot configs alter topic orders --set retention.ms=3600000 --set max.message.bytes=2000000
  triglot configs alter topic orders --unset retention.ms
"""


def add_commands(commands: Commands) -> None:
    """Add `configs` to the command line's."""
    configs = commands.add_parser(
        "configs",
        help="show and change settings of topics, brokers and groups",
        description=CONFIGS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    configs.set_defaults(run=run_configs)
    actions = configs.add_subparsers(dest="action", metavar="ACTION", required=True)
    described = add_cluster_action(actions, "describe", "show settings", DESCRIBE_HELP)
    _add_resource(described)
    described.add_argument("key", nargs="*", metavar="KEY", help="only these, whoever set them")
    described.add_argument(
        "--all", action="store_true", help="also what was not made for this resource"
    )
    altered = add_cluster_action(actions, "alter", "change settings", ALTER_HELP)
    _add_resource(altered)
    add_changes(altered)


def add_changes(parser: argparse.ArgumentParser) -> None:
    """`--set` and `--unset`, each of which may be given several times."""
    parser.add_argument("--set", type=named_value, action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--unset", action="append", default=[], metavar="KEY", help="back to what holds without it"
    )


def _add_resource(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS, metavar="TYPE", help=", ".join(KINDS))
    name = parser.add_argument("name", metavar="NAME", help="a name; of a broker its id")
    complete_topics(name)


def run_configs(arguments: Arguments) -> int:
    """`triglot configs`. The exit code."""
    if arguments.action == "alter":
        fault = fault_of_changes(arguments) or (
            ""
            if arguments.set or arguments.unset
            else "name what to change: --set KEY=VALUE, --unset KEY"
        )
        if fault:
            return refuse(fault, code=WRONG_USE)
    from tools.configs import actions

    action: Callable[[Cluster, Arguments], None] = {
        "describe": actions.run_describe,
        "alter": actions.run_alter,
    }[arguments.action]
    return run_on_cluster(action, arguments, client_id=CLIENT_ID)


def fault_of_changes(arguments: Arguments) -> str:
    """What is wrong with `--set` and `--unset` together; "" is nothing."""
    names = [name for name, _ in arguments.set] + arguments.unset
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"{twice[0]} is named twice by --set and --unset" if twice else ""
