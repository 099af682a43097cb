"""`triglot transactions`: transactions and their producers, asked of a running broker.

`tools.transactions` does the work; here are the arguments and the exit codes.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tools.arguments import add_cluster_action, refuse, run_on_cluster, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster import Cluster, TopicPartition

    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CLIENT_ID = b"triglot-transactions"
WRONG_USE = 2
DEFAULT_TIMEOUT_MIN = 15
"""Kafka's transaction.max.timeout.ms, in minutes."""

TRANSACTIONS_HELP = """\
Look at transactions, find those that nobody ends, and abort them. The broker is a running one,
triglot or Apache Kafka (3.0 or later). --command-config names a file with Kafka's client properties
where it wants TLS or authentication.

  triglot transactions list --state Ongoing
  triglot transactions describe --transactional-id bank
  triglot transactions describe-producers --topic-partition orders-0
  triglot transactions find-hanging
  triglot transactions abort --topic-partition orders-0 --start-offset 42

A transaction has a coordinator, which knows its transactional id, and partitions, which know that
a producer has something open. The first two actions ask coordinators, the third a partition.

Exit code 0: done. 1: it could not be done. 2: the command line is wrong.
"""

LIST_HELP = """\
One line per transactional id that a coordinator remembers, also where nothing is open.

  triglot transactions list --state Ongoing --state PrepareCommit
  triglot transactions list --duration-filter 60000          open for more than a minute
  triglot transactions list --transactional-id-pattern 'payments-.*'
  triglot transactions list --producer-id 4001

States: Empty (nothing begun), Ongoing, PrepareCommit and PrepareAbort (the end is decided and on
its way to the partitions), CompleteCommit, CompleteAbort, Dead. Brokers before Kafka 3.8 do not
choose by duration, those before 4.1 not by pattern.
"""

DESCRIBE_HELP = """\
A transactional id: its state, its producer, its time-out, and since when its transaction is open
in which partitions. __consumer_offsets among them means that offsets of a group are part of it.
"""

PRODUCERS_HELP = """\
The producers that a partition remembers, transactional or idempotent.

OPEN-SINCE is the offset at which a transaction of the producer begins that is still open there:
readers of committed records get nothing from there on. LAST-TIMESTAMP is the time of its newest
record, by its own clock. COORDINATOR-EPOCH is that of the last marker.
"""

HANGING_HELP = """\
Find transactions that are open in a partition and that no coordinator will end there: their
producer id belongs to no transactional id, or to one whose transaction has ended, has another
epoch, or does not name the partition. Readers of committed records stop at them for good.

  triglot transactions find-hanging                        every partition of the cluster
  triglot transactions find-hanging --topic orders --partition 0
  triglot transactions find-hanging --broker-id 1          those that a broker leads

Only transactions are looked at whose producer has been silent for longer than any time-out may be
(--max-transaction-timeout, in minutes). It goes by the timestamps of records, so by the producers'
clocks. What is found is looked at twice. Nothing is changed; the lines say how to abort.
"""

ABORT_HELP = """\
Abort one transaction. There is no question asked: what is named is aborted.

  triglot transactions abort --topic-partition orders-0 --start-offset 42

writes an abort marker to one partition, for the transaction that begins at this offset
(`find-hanging` and `describe-producers` tell). It is refused while a coordinator has the
transaction in hand, which would tear it.

  triglot transactions abort --topic-partition orders-0 --producer-id 4001 --producer-epoch 2 \\
      --coordinator-epoch 0

writes the marker whatever a coordinator says; also for brokers before Kafka 3.0, which tell
nothing of producers.

  triglot transactions abort --transactional-id bank

takes over the transactional id, as a new instance of its producer would: its open transaction is
aborted as a whole, and the producer that has it is fenced.
"""


def add_commands(commands: Commands) -> None:
    """Add `transactions` to the command line's."""
    transactions = commands.add_parser(
        "transactions",
        help="look at transactions of a running broker, find hanging ones, abort them",
        description=TRANSACTIONS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    transactions.set_defaults(run=run_transactions)
    actions = transactions.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_list(add_cluster_action(actions, "list", "list the transactional ids", LIST_HELP))
    described = add_cluster_action(actions, "describe", "one transactional id", DESCRIBE_HELP)
    described.add_argument("--transactional-id", metavar="ID", required=True)
    producers = add_cluster_action(
        actions, "describe-producers", "the producers of a partition", PRODUCERS_HELP
    )
    producers.add_argument("--topic-partition", type=_place, metavar="TOPIC-N", required=True)
    _add_find_hanging(
        add_cluster_action(
            actions, "find-hanging", "find transactions that nobody ends", HANGING_HELP
        )
    )
    _add_abort(add_cluster_action(actions, "abort", "abort one transaction", ABORT_HELP))


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", action="append", metavar="S", help="only those in this state; may be repeated"
    )
    parser.add_argument(
        "--producer-id",
        action="append",
        type=whole_number,
        metavar="N",
        help="only that of this producer; may be repeated",
    )
    parser.add_argument(
        "--duration-filter",
        type=whole_number,
        metavar="MS",
        help="only transactions that have been open for longer than so many ms",
    )
    parser.add_argument(
        "--transactional-id-pattern",
        metavar="RE",
        help="only ids that this regular expression (RE2) matches as a whole",
    )


def _add_find_hanging(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--broker-id", type=whole_number, metavar="N", help="only partitions that this one leads"
    )
    parser.add_argument("--topic", metavar="T", help="only partitions of this topic")
    parser.add_argument(
        "--partition", type=whole_number, metavar="N", help="only this one; with --topic"
    )
    parser.add_argument(
        "--max-transaction-timeout",
        type=whole_number,
        default=DEFAULT_TIMEOUT_MIN,
        metavar="MINUTES",
        help="the longest time-out that a producer may have here (transaction.max.timeout.ms); "
        f"default {DEFAULT_TIMEOUT_MIN}",
    )


def _add_abort(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic-partition", type=_place, metavar="TOPIC-N")
    which.add_argument("--transactional-id", metavar="ID")
    parser.add_argument(
        "--start-offset", type=whole_number, metavar="N", help="where the transaction begins"
    )
    for name in ("--producer-id", "--producer-epoch", "--coordinator-epoch"):
        parser.add_argument(name, type=whole_number, metavar="N")


def run_transactions(arguments: Arguments) -> int:
    """`triglot transactions`. The exit code."""
    from tools.transactions import actions

    fault = _fault(arguments)
    if fault:
        return refuse(fault, code=WRONG_USE)
    action: Callable[[Cluster, Arguments], None] = {
        "list": actions.run_list,
        "describe": actions.run_describe,
        "describe-producers": actions.run_describe_producers,
        "find-hanging": actions.run_find_hanging,
        "abort": actions.run_abort,
    }[arguments.action]
    return run_on_cluster(action, arguments, client_id=CLIENT_ID)


def _fault(arguments: Arguments) -> str:
    """What is wrong with arguments that are right by themselves; "" is nothing."""
    if arguments.action == "find-hanging" and arguments.topic is None:
        return "--partition wants a --topic" if arguments.partition is not None else ""
    if arguments.action != "abort":
        return ""
    by_producer = [arguments.producer_id, arguments.producer_epoch, arguments.coordinator_epoch]
    given = [value for value in by_producer if value is not None]
    if arguments.transactional_id is not None:
        alone = not given and arguments.start_offset is None
        return "" if alone else "--transactional-id stands alone"
    if arguments.start_offset is not None:
        return "--start-offset stands without the producer" if given else ""
    if len(given) == len(by_producer):
        return ""
    all_three = "--producer-id, --producer-epoch and --coordinator-epoch together"
    return f"--topic-partition wants --start-offset, or {all_three}"


def _place(text: str) -> TopicPartition:
    from protocol.partitions import TopicPartition

    topic, _, partition = text.rpartition("-")
    if not topic or not partition.isascii() or not partition.isdecimal():
        raise argparse.ArgumentTypeError(f"wanted TOPIC-PARTITION, as in orders-0, found '{text}'")
    return TopicPartition(topic, int(partition))
