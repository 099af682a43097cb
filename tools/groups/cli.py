"""`triglot groups`: consumer groups and their offsets, asked of a running broker.

`tools.groups` does the work; here are the arguments, the lines and the exit codes.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tools.arguments import (
    add_cluster_action,
    duration,
    moment,
    run_on_cluster,
    topic_selection,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster import Cluster

    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CLIENT_ID = b"triglot-groups"
DEFAULT_LIMIT = 100

GROUPS_HELP = """\
Look at consumer groups and change their offsets. The broker is a running one, triglot or Apache
Kafka (0.11 or later). --command-config names a file with Kafka's client properties where it wants
TLS or authentication.

  triglot groups list
  triglot groups describe billing
  triglot groups reset billing --topic orders --to-time 2026-01-31T12:00:00Z
  triglot groups delete billing
  triglot groups history billing --topic orders

Exit code 0: done. 1: it could not be done. 2: the command line is wrong.
"""

LIST_HELP = """\
One line per group: its type, state and protocol. Brokers before Kafka 2.6 do not tell states,
and those before 3.8 do not tell types; then they cannot be filtered by.
"""

DESCRIBE_HELP = """\
Who is in a group, and how far each partition has been read.

LAG counts the offsets from the committed one to the end of the log. That is records, but for the
markers of transactions and what compaction removed. If the committed offset is below the start of
the log, the count begins there. LAG-SECONDS is the age of the oldest record that is not read: the
batch at the committed offset is fetched and the timestamp of the record taken from this computer's
time. It is 0 when nothing is left to read. It is as right as the timestamps, which producers set
unless the topic has message.timestamp.type=LogAppendTime.

What cannot be said is left empty and NOTE says why: a topic that is gone, nothing committed, an
offset above the end, records without timestamps (format 0), timestamps in the future.
"""

RESET_HELP = """\
Set the offsets of a group that has no members. Without --execute it only says what it would do.

  triglot groups reset billing --all-topics --to-earliest
  triglot groups reset billing --topic orders --topic users:0,3 --to-time 2026-01-31T12:00:00Z
  triglot groups reset billing --topic orders --by-duration 1h30m --execute

An offset outside the log is moved to its start or end, and the line says so. All offsets are set
by one commit, as a whole or not at all. A group that does not exist is made by it.
"""

DELETE_HELP = """\
Delete a group with all its offsets, or the offsets of some topics only. Without --execute it only
says what it would do. The broker refuses a group that has members, and offsets of topics that
members read.
"""

HISTORY_HELP = """\
Which commits set an offset to what and when, as far as the log of __consumer_offsets holds them.

  2026-01-31T12:00:00.000Z  @1234  orders-0: 100 -> 250 (+150)

is the time of the commit, its offset in that log, the partition, and what the offset was and
became. `none` is no offset; `?` is one that is not known, because compaction has removed records
before. A commit that was part of a transaction is shown at its end, with the producer's id.
Between the commits stand the generations of the group, or its members. The whole log is read, from
its start; how much of it is still there is said last.
"""


def add_commands(commands: Commands) -> None:
    """Add `groups` to the command line's."""
    groups = commands.add_parser(
        "groups",
        help="look at consumer groups of a running broker, and reset their offsets",
        description=GROUPS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    groups.set_defaults(run=run_groups)
    actions = groups.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = add_cluster_action(actions, "list", "list the groups", LIST_HELP)
    listed.add_argument("--state", metavar="S", help="only those in this state, as in Stable")
    listed.add_argument("--type", choices=("classic", "consumer"), dest="kind")
    described = add_cluster_action(
        actions, "describe", "members, offsets and lag of a group", DESCRIBE_HELP
    )
    described.add_argument("group", metavar="GROUP")
    _add_reset(add_cluster_action(actions, "reset", "set the offsets of a group", RESET_HELP))
    deleted = add_cluster_action(actions, "delete", "delete a group, or offsets of it", DELETE_HELP)
    deleted.add_argument("group", metavar="GROUP")
    _add_topics(deleted)
    _add_execute(deleted)
    history = add_cluster_action(
        actions, "history", "which commits set which offset when", HISTORY_HELP
    )
    history.add_argument("group", metavar="GROUP")
    history.add_argument("--topic", metavar="T", help="only commits of this topic")
    history.add_argument(
        "--partition", type=whole_number, metavar="N", help="only of this partition"
    )
    history.add_argument(
        "--limit",
        type=whole_number,
        default=DEFAULT_LIMIT,
        metavar="N",
        help=f"the newest so many lines; 0 for all; default {DEFAULT_LIMIT}",
    )
    history.add_argument(
        "--progress",
        action="store_true",
        help="say on standard error how far it is, also where that is no terminal",
    )


def _add_reset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    topics = parser.add_mutually_exclusive_group(required=True)
    _add_topics(topics)
    topics.add_argument(
        "--all-topics", action="store_true", help="all partitions that the group has committed"
    )
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-offset", type=whole_number, metavar="N")
    to.add_argument("--to-earliest", action="store_true", help="the start of the log")
    to.add_argument("--to-latest", action="store_true", help="the end of the log")
    to.add_argument(
        "--to-time",
        type=moment,
        metavar="TIME",
        help="the first record at or after 2026-01-31T12:00:00Z (UTC where no zone is named), or "
        "ms since 1970",
    )
    to.add_argument(
        "--by-duration",
        type=duration,
        metavar="DURATION",
        help="the first record that is at most so old: 1h30m, 2d or PT1H",
    )
    to.add_argument(
        "--shift", type=int, metavar="N", help="so many offsets on from the committed one, or back"
    )
    _add_execute(parser)


def _add_topics(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--topic",
        type=topic_selection,
        action="append",
        metavar="T[:P,P]",
        help="a topic, or some of its partitions; may be given several times",
    )


def _add_execute(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--execute", action="store_true", help="do it; without this, only say it")


def run_groups(arguments: Arguments) -> int:
    """`triglot groups`. The exit code."""
    from tools.groups import actions

    action: Callable[[Cluster, Arguments], None] = {
        "list": actions.run_list,
        "describe": actions.run_describe,
        "reset": actions.run_reset,
        "delete": actions.run_delete,
        "history": actions.run_history,
    }[arguments.action]
    return run_on_cluster(action, arguments, client_id=CLIENT_ID)
