"""The actions of `triglot topics`, from parsed arguments to printed lines."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from client.errors import Refused
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest
from tools.configs.actions import setting_json, setting_rows
from tools.configs.settings import Resource, alter_settings, settings_of
from tools.errors import NotDone
from tools.printing import counted, print_json, print_lines, table
from tools.selection import require_topics
from tools.topics.changes import add_partitions, delete_topic
from tools.topics.described import described, listed

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from tools.cluster import Cluster
    from tools.configs.settings import Setting
    from tools.topics.described import Described


def run_list(cluster: Cluster, arguments: Arguments) -> None:
    """The topics, filtered as asked."""
    found = [
        topic
        for topic in listed(cluster)
        if (arguments.internal or not topic.is_internal)
        and (
            not arguments.pattern
            or any(fnmatchcase(topic.name, pattern) for pattern in arguments.pattern)
        )
    ]
    if arguments.json:
        print_json([topic._asdict() for topic in found])
    elif found:
        rows = [
            (topic.name, topic.partitions, topic.replicas, "yes" if topic.is_internal else "")
            for topic in found
        ]
        print_lines(table(("TOPIC", "PARTITIONS", "REPLICAS", "INTERNAL"), rows))
    else:
        print_lines(["no topics"])


def run_create(cluster: Cluster, arguments: Arguments) -> None:
    """New topics, one after the other; the first that is refused ends it."""
    made: list[str] = []
    there: list[str] = []
    for name in arguments.topic:
        try:
            cluster.create_topic(
                name,
                partitions=arguments.partitions,
                replicas=arguments.replicas,
                configs=dict(arguments.set),
                validate_only=arguments.validate_only,
            )
        except Refused as refused:
            exists = refused.code == ErrorCode.TOPIC_ALREADY_EXISTS
            if not (exists and arguments.if_not_exists):
                before = f" ({', '.join(made)} made before)" if made else ""
                raise NotDone(f"{refused}{before}") from None
            there.append(name)
        else:
            made.append(name)
    if arguments.json:
        done = {"made": made, "existing": there, "validated_only": arguments.validate_only}
        print_json(done)
        return
    verb = "would be made" if arguments.validate_only else "made"
    print_lines([*(f"{name} {verb}" for name in made), *(f"{name} is there" for name in there)])


def run_describe(cluster: Cluster, arguments: Arguments) -> None:
    """Topics with their partitions and settings."""
    found = described(cluster, arguments.topic)
    tells = cluster.offers(DescribeConfigsRequest)
    settings = {
        topic.name: [
            one for one in settings_of(cluster, Resource("topic", topic.name)) if one.is_own
        ]
        if tells
        else []
        for topic in found
    }
    if arguments.json:
        print_json([_topic_json(topic, settings[topic.name]) for topic in found])
        return
    for number, topic in enumerate(found):
        print_lines([*[""][: number > 0], *_topic_lines(topic, settings[topic.name])])


def run_alter(cluster: Cluster, arguments: Arguments) -> None:
    """More partitions, other settings."""
    name = arguments.topic
    require_topics(cluster, [name])
    new = dict(arguments.set)
    done = []
    if new or arguments.unset:
        alter_settings(cluster, Resource("topic", name), new, arguments.unset)
        done.append(f"{counted(len(new) + len(arguments.unset), 'setting')} changed")
    if arguments.partitions is not None:
        try:
            add_partitions(cluster, name, arguments.partitions)
        except NotDone as error:
            raise NotDone("; ".join([str(error), *done])) from None
        done.append(counted(arguments.partitions, "partition"))
    if arguments.json:
        changes = {"partitions": arguments.partitions, "set": new, "unset": arguments.unset}
        print_json({"topic": name, **changes})
    else:
        print_lines([f"{name}: {', '.join(done)}"])


def run_delete(cluster: Cluster, arguments: Arguments) -> None:
    """Topics with all that they hold; one that does not exist ends it before any is deleted."""
    found = described(cluster, arguments.topic)
    gone: list[str] = []
    if arguments.execute:
        for topic in found:
            try:
                delete_topic(cluster, topic.name)
            except NotDone as error:
                before = f" ({', '.join(gone)} deleted before)" if gone else ""
                raise NotDone(f"{error}{before}") from None
            gone.append(topic.name)
    if arguments.json:
        names = [topic.name for topic in found]
        print_json({"topics": names, "executed": arguments.execute})
        return
    print_lines(
        f"{topic.name}: {counted(len(topic.partitions), 'partition')}, "
        f"{counted(topic.records, 'record')}"
        for topic in found
    )
    what = counted(len(found), "topic")
    if arguments.execute:
        print_lines([f"{what} deleted"])
    else:
        print_lines([f"{what} to delete; nothing was changed: --execute does it"])


def _topic_json(topic: Described, settings: list[Setting]) -> dict[str, object]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "records": topic.records,
        "partitions": [one._asdict() for one in topic.partitions],
        "settings": setting_json(settings),
    }


def _topic_lines(topic: Described, settings: list[Setting]) -> list[str]:
    lines = [
        f"topic       {topic.name}",
        *[f"id          {topic.topic_id}"][: bool(topic.topic_id)],
        f"partitions  {len(topic.partitions)}",
        f"records     {topic.records}",
        "",
    ]
    rows = [
        (
            one.partition,
            "none" if one.leader < 0 else one.leader,
            ",".join(map(str, one.replicas)),
            ",".join(map(str, one.in_sync)),
            one.start,
            one.end,
            one.records,
            one.note,
        )
        for one in topic.partitions
    ]
    head = ("PARTITION", "LEADER", "REPLICAS", "IN-SYNC", "START", "END", "RECORDS", "NOTE")
    lines += table(head, rows)
    if settings:
        lines += ["", *setting_rows(settings)]
    return lines
