"""`triglot topics`: the arguments and the exit codes; `tools.topics.actions` does the work."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tools.arguments import (
    add_cluster_action,
    complete_topics,
    named_value,
    refuse,
    run_on_cluster,
    whole_number,
)
from tools.configs.cli import add_changes, fault_of_changes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster import Cluster

    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CLIENT_ID = b"triglot-topics"
WRONG_USE = 2

TOPICS_HELP = """\
Topics of a running broker, triglot or Apache Kafka of any age: those from 0.8 on can be listed and
described, and from 0.10.1 on they make, change and delete topics when they are asked to.

  triglot topics list
  triglot topics create orders --partitions 3 --set retention.ms=86400000
  triglot topics describe orders
  triglot topics alter orders --partitions 6 --unset retention.ms
  triglot topics delete orders --execute

Exit code 0: done. 1: it could not be done. 2: the command line is wrong.
"""

LIST_HELP = """\
One line per topic. A pattern has * for anything and ? for one character; quote it.

  triglot topics list 'orders-*'
"""

CREATE_HELP = """\
Make topics. Without --partitions and --replicas the broker takes its own numbers (before Kafka 2.4
it has none, and 1 is taken).

  triglot topics create orders payments --partitions 3
  triglot topics create orders --set cleanup.policy=compact --set retention.ms=-1
"""

DESCRIBE_HELP = """\
A topic with its partitions, and the settings that were made for it; `triglot configs describe topic
NAME --all` shows the others.

RECORDS counts the offsets from the start of the log to its end. That is records, but for the
markers of transactions and what compaction removed.
"""

ALTER_HELP = """\
Change a topic. Partitions can be added, not removed: records with a key go to others then.

  triglot topics alter orders --partitions 6
  triglot topics alter orders --set retention.ms=3600000 --unset cleanup.policy
"""

DELETE_HELP = """\
Delete topics with all their records. Without --execute it only says what it would do.
"""


def add_commands(commands: Commands) -> None:
    """Add `topics` to the command line's."""
    topics = commands.add_parser(
        "topics",
        help="list, create, describe, alter and delete topics",
        description=TOPICS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    topics.set_defaults(run=run_topics)
    actions = topics.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = add_cluster_action(actions, "list", "list the topics", LIST_HELP)
    listed.add_argument("pattern", nargs="*", metavar="PATTERN", help="only those of such names")
    listed.add_argument("--internal", action="store_true", help="the broker's own topics, too")
    _add_create(add_cluster_action(actions, "create", "make topics", CREATE_HELP))
    described = add_cluster_action(
        actions, "describe", "partitions and settings of topics", DESCRIBE_HELP
    )
    complete_topics(described.add_argument("topic", nargs="+", metavar="TOPIC"))
    altered = add_cluster_action(actions, "alter", "add partitions, change settings", ALTER_HELP)
    complete_topics(altered.add_argument("topic", metavar="TOPIC"))
    altered.add_argument(
        "--partitions", type=whole_number, metavar="N", help="how many there are to be"
    )
    add_changes(altered)
    deleted = add_cluster_action(actions, "delete", "delete topics", DELETE_HELP)
    complete_topics(deleted.add_argument("topic", nargs="+", metavar="TOPIC"))
    deleted.add_argument("--execute", action="store_true", help="do it; without this, only say it")


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="+", metavar="TOPIC")
    parser.add_argument("--partitions", type=whole_number, metavar="N")
    parser.add_argument("--replicas", type=whole_number, metavar="N")
    parser.add_argument("--set", type=named_value, action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--if-not-exists", action="store_true", help="leave a topic that is there as it is"
    )
    parser.add_argument(
        "--validate-only", action="store_true", help="only ask whether it would be made"
    )


def run_topics(arguments: Arguments) -> int:
    """`triglot topics`. The exit code."""
    if arguments.action == "alter":
        fault = fault_of_changes(arguments)
        if arguments.partitions is None and not arguments.set and not arguments.unset:
            fault = "name what to change: --partitions N, --set KEY=VALUE, --unset KEY"
        if fault:
            return refuse(fault, code=WRONG_USE)
    from tools.topics import actions

    action: Callable[[Cluster, Arguments], None] = {
        "list": actions.run_list,
        "create": actions.run_create,
        "describe": actions.run_describe,
        "alter": actions.run_alter,
        "delete": actions.run_delete,
    }[arguments.action]
    return run_on_cluster(action, arguments, client_id=CLIENT_ID)
