"""`triglot acls`: the arguments and the exit codes; `tools.acls.actions` does the work."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from protocol.acls import OPERATION_NAMES, ResourceType
from tools.acls.resources import RESOURCES, resources_of
from tools.arguments import add_cluster_action, refuse, run_on_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster import Cluster

    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CLIENT_ID = b"triglot-acls"
WRONG_USE = 2

ACLS_HELP = """\
Access rules: who may do what. They are the same rules that kafka-acls knows, and hold where the
broker has authorizer.class.name. The broker is a running one, triglot or Apache Kafka (0.11 or
later).

  triglot acls add --principal alice --operation write --topic orders
  triglot acls add --principal bob --consumer --topic orders --group billing
  triglot acls add --principal alice --operation all --topic team-a. --prefix
  triglot acls list --topic orders
  triglot acls explain --principal bob --operation read --topic orders
  triglot acls remove --principal bob

A principal is User:alice; alice alone means the same, and '*' is everybody. Rules that deny win
over all that allow. Read, write, delete and alter bring describe along, alter-configs brings
describe-configs. Super users (super.users) need no rules.

Exit code 0: done; of explain: allowed. 1: it could not be done; of explain: denied. 2: the command
line is wrong.
"""

ADD_HELP = """\
Add rules, one for each principal, operation and resource named.

  triglot acls add --principal alice --operation write --topic orders
  triglot acls add --principal alice --producer --topic orders
  triglot acls add --principal bob --consumer --topic orders --group billing
  triglot acls add --principal '*' --operation read --topic public. --prefix
  triglot acls add --deny --principal mallory --operation all --topic '*'
  triglot acls add --principal ops --operation alter --operation describe --cluster

--producer stands for write, describe and create on topics (and write, describe on transactional
ids), --consumer for read and describe on topics and read on groups. With --prefix a name is the
beginning of names; the name '*' is every resource of its type. Try it with `triglot acls explain`.
"""

REMOVE_HELP = """\
Remove all rules that have what is named, and print them. At least one thing has to be named.

  triglot acls remove --principal bob                       all rules of bob
  triglot acls remove --topic orders                        all rules of exactly this name
  triglot acls remove --topic orders --operation write --principal alice
"""

LIST_HELP = """\
Print rules: all of them, or those that have what is named.

  triglot acls list
  triglot acls list --principal alice
  triglot acls list --topic orders                          rules of exactly this name
  triglot acls list --topic orders --matching               also '*' and prefixes that cover it
"""

EXPLAIN_HELP = """\
May this principal do this, and by which rule? The exit code is 0 if it may, 1 if not.

  triglot acls explain --principal alice --operation write --topic orders
  triglot acls explain --principal alice --operation write --topic orders --host 10.0.0.7

The rules are asked of the broker and decided upon as the broker does. Without --host only rules
for every address count. Super users and allow.everyone.if.no.acl.found are settings of the broker;
where it does not tell them, this is said and they are taken as unset.
"""


def add_commands(commands: Commands) -> None:
    """Add `acls` to the command line's."""
    acls = commands.add_parser(
        "acls",
        help="add, list, remove and explain access rules",
        description=ACLS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    acls.set_defaults(run=run_acls)
    actions = acls.add_subparsers(dest="action", metavar="ACTION", required=True)
    operations = tuple(OPERATION_NAMES.values())
    add = add_cluster_action(actions, "add", "add rules", ADD_HELP)
    add.add_argument("--principal", action="append", required=True, metavar="NAME")
    what = add.add_mutually_exclusive_group(required=True)
    what.add_argument("--operation", action="append", choices=operations, metavar="OPERATION")
    what.add_argument("--producer", action="store_true", help="all that a producer needs")
    what.add_argument("--consumer", action="store_true", help="all that a consumer needs")
    _add_resources(add, repeated=True)
    add.add_argument("--prefix", action="store_true", help="names are beginnings of names")
    add.add_argument("--deny", action="store_true", help="take instead of give")
    add.add_argument("--host", default="*", metavar="ADDRESS", help="only from there; default '*'")
    for name, line, text in (
        ("remove", "remove rules", REMOVE_HELP),
        ("list", "list rules", LIST_HELP),
    ):
        parser = add_cluster_action(actions, name, line, text)
        parser.add_argument("--principal", metavar="NAME")
        parser.add_argument("--operation", choices=operations, metavar="OPERATION")
        _add_resources(parser, repeated=False)
        parser.add_argument("--host", metavar="ADDRESS")
        parser.add_argument("--prefix", action="store_true", help="only rules with --prefix")
        if name == "list":
            parser.add_argument(
                "--matching", action="store_true", help="all rules that are about this resource"
            )
    explain = add_cluster_action(actions, "explain", "who may do what, and why", EXPLAIN_HELP)
    explain.add_argument("--principal", required=True, metavar="NAME")
    explain.add_argument("--operation", required=True, choices=operations, metavar="OPERATION")
    _add_resources(explain, repeated=False)
    explain.add_argument("--host", metavar="ADDRESS", help="where the client is")


def _add_resources(parser: argparse.ArgumentParser, *, repeated: bool) -> None:
    for name in RESOURCES:
        parser.add_argument(
            f"--{name.replace('_', '-')}", metavar="NAME", action="append" if repeated else "store"
        )
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")


def run_acls(arguments: Arguments) -> int:
    """`triglot acls`. The exit code."""
    fault = _fault(arguments)
    if fault:
        return refuse(fault, code=WRONG_USE)
    from tools.acls import actions

    action: Callable[[Cluster, Arguments], None] = {
        "add": actions.run_add,
        "remove": actions.run_remove,
        "list": actions.run_list,
        "explain": actions.run_explain,
    }[arguments.action]
    return run_on_cluster(action, arguments, client_id=CLIENT_ID)


def _fault(arguments: Arguments) -> str:
    """What is wrong with arguments that are right by themselves; "" is nothing."""
    resources = resources_of(arguments)
    if any(not name for _, name in resources):
        return "the name of a resource is empty"
    if arguments.action == "add":
        return _fault_of_add(arguments, resources)
    if len(resources) > 1:
        return "name one resource only"
    if arguments.action == "explain":
        return "" if resources else "name a resource: --topic NAME, --group NAME, --cluster"
    if arguments.action == "list":
        alone = not (arguments.matching and not resources)
        return "" if alone else "--matching wants a resource: --topic NAME"
    named = resources or arguments.principal or arguments.operation or arguments.host
    return "" if named else "name what to remove: --principal NAME, --topic NAME"


def _fault_of_add(arguments: Arguments, resources: list[tuple[int, str]]) -> str:
    types = {resource_type for resource_type, _ in resources}
    if not resources:
        return "name a resource: --topic NAME, --group NAME, --cluster"
    if arguments.producer and not types <= {ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID}:
        return "--producer is about --topic and --transactional-id"
    if arguments.consumer and types != {ResourceType.TOPIC, ResourceType.GROUP}:
        return "--consumer wants --topic and --group, and no other resource"
    if arguments.cluster and arguments.prefix:
        return "--cluster has no name, so no --prefix"
    if arguments.prefix and "*" in {name for _, name in resources}:
        return "with --prefix the name '*' is the beginning '*'; every name is '*' without --prefix"
    return ""
