"""The clients whose groups are tried, and how the program is started that hosts their members."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.clients.drivers.old_program_driver import CHECKOUT
from tests.clients.drivers.program_driver import CLIENTS, JAVA_VERSIONS
from tests.clients.python.patches import PATCHES
from tests.support import fetched

if TYPE_CHECKING:
    from collections.abc import Mapping

CLASSIC, CONSUMER = "classic", "consumer"

JAVA_ASSIGNOR = "client.partition.assignment.strategy"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
ROUND_ROBIN = "org.apache.kafka.clients.consumer.RoundRobinAssignor"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@dataclass(frozen=True)
class GroupClient:
    """One client library in one release, by one of the two protocols."""

    key: str
    runtime: str
    #: Of Java the release; of Python the module, and the release where it is not the tests' own.
    java: str = ""
    module: str = ""
    release: str = ""
    protocol: str = CLASSIC
    #: Whether its members may have an instance id that outlives them.
    static: bool = False
    #: Clients before 0.9 keep offsets in a group, and have no members.
    joins: bool = True
    #: Whether the metadata of a committed offset can be given, and seen, as it is.
    gives_metadata: bool = True
    shows_metadata: bool = True
    #: Whether it needs requests that Apache Kafka has from 4.0 on.
    needs_4: bool = False
    #: Words of `join`, `put` and `get` beside those that all clients have.
    words: Mapping[str, str] = field(default_factory=dict)
    #: Those that make its members understand every other client's; None where that cannot be.
    range_words: Mapping[str, str] | None = field(default_factory=dict)


def _java(key: str, release: str, assignor: str = RANGE, *, static: bool = False) -> GroupClient:
    return GroupClient(
        key,
        "java",
        java=release,
        static=static,
        words={JAVA_ASSIGNOR: assignor},
        range_words={JAVA_ASSIGNOR: RANGE},
    )


GROUP_CLIENTS = (
    GroupClient(
        "kafka-python-1.4.7",
        "python",
        module="group_kafka_python",
        release="1.4.7",
        shows_metadata=False,
    ),
    GroupClient("kafka-python-2.0.2", "python", module="group_kafka_python", release="2.0.2"),
    # Its other assignors forget members where static ones and others take turns in the list.
    GroupClient(
        "kafka-python",
        "python",
        module="group_kafka_python",
        static=True,
        words={"assignor": "CooperativeStickyAssignor"},
    ),
    GroupClient(
        "aiokafka",
        "python",
        module="group_aiokafka",
        static=True,
        shows_metadata=False,
        range_words={"assignor": "RangePartitionAssignor"},
    ),
    # To metadata it adds the byte that ends a string in C, and it looks for that in every other's.
    GroupClient(
        "confluent-kafka",
        "python",
        module="group_confluent",
        static=True,
        gives_metadata=False,
        shows_metadata=False,
        words={"protocol": CLASSIC, "assignor": "cooperative-sticky"},
        range_words={"protocol": CLASSIC, "assignor": "range"},
    ),
    GroupClient(
        "confluent-kafka-consumer",
        "python",
        module="group_confluent",
        protocol=CONSUMER,
        static=True,
        gives_metadata=False,
        shows_metadata=False,
        needs_4=True,
        words={"protocol": CONSUMER},
        range_words=None,
    ),
    GroupClient("kafkajs", "node", gives_metadata=False, range_words=None),
    _java("java-0.9.0", "0.9.0.1"),
    _java("java-0.10.0", "0.10.0.1", ROUND_ROBIN),
    _java("java-0.10.2", "0.10.2.2"),
    _java("java-0.11.0", "0.11.0.3"),
    _java("java-1.1", "1.1.1", ROUND_ROBIN),
    # With its cooperative assignor two members may own a partition for a moment, on any broker.
    _java("java-2.8", "2.8.2", static=True),
    _java("java-3.9", JAVA_VERSIONS["java-3.9"], static=True),
    _java("java-4", JAVA_VERSIONS["java-4"], COOPERATIVE, static=True),
    GroupClient(
        "java-4-consumer",
        "java",
        java=JAVA_VERSIONS["java-4"],
        protocol=CONSUMER,
        static=True,
        words={"client.group.protocol": CONSUMER},
        range_words=None,
    ),
)

#: Releases between the oldest and those of today: `make test-long` tries them.
BETWEEN = (
    "kafka-python-2.0.2",
    *("java-0.10.0", "java-0.10.2", "java-0.11.0", "java-1.1", "java-2.8", "java-3.9"),
)

#: Clients that know offsets of groups, and no groups: version 0 of the requests, and 1.
OFFSET_CLIENTS = (
    GroupClient(
        "kafka-python-0.9.5",
        "python",
        module="group_kafka_python_0_9",
        release="0.9.5",
        joins=False,
    ),
    GroupClient("java-0.8.2-v0", "java", java="0.8.2.2", joins=False, words={"version": "0"}),
    GroupClient("java-0.8.2-v1", "java", java="0.8.2.2", joins=False, words={"version": "1"}),
)

BY_KEY = {client.key: client for client in (*GROUP_CLIENTS, *OFFSET_CLIENTS)}


def host_command(client: GroupClient) -> tuple[list[str], dict[str, str]]:
    """The program of this client and what it needs in its environment. Raises `NotAvailable`."""
    if client.runtime == "java":
        return _java_command(client.java), {}
    if client.runtime == "node":
        package = CLIENTS / "node"
        modules = fetched.node_modules(package)
        command = [fetched.runtime("node"), str(package / "kafkajs_group_host.js")]
        return command, {"NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    path = str(CHECKOUT)
    if client.release:
        requirements = CLIENTS / "python" / f"kafka-python-{client.release}.txt"
        path = f"{fetched.python_packages(requirements, PATCHES[client.release])}:{path}"
    command = [sys.executable, "-W", "ignore", "-m", f"tests.clients.python.{client.module}"]
    return command, {"PYTHONPATH": path}


def _java_command(release: str) -> list[str]:
    java, sources = fetched.runtime("java"), CLIENTS / "java"
    if release in JAVA_VERSIONS.values():
        jars = fetched.jars(sources / "pom.xml", properties={"kafka.version": release})
    else:
        # The consumer of 0.8 is a part of the broker.
        artifact = "kafka_2.11" if release.startswith("0.8") else "kafka-clients"
        properties = {"kafka.artifact": artifact, "kafka.version": release}
        jars = fetched.jars(sources / "old" / "pom.xml", properties=properties)
    folders = [sources / "common"]
    if release.startswith("0.8"):
        folders.append(sources / "group" / "v0_8_2")
    else:
        calls = "before_2" if release < "2" else "since_2"
        folders += [sources / "group" / "common", sources / "group" / calls]
    classes = fetched.classes(*folders, classpath=jars)
    command = [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return [*command, "-cp", f"{classes}:{jars}/*", "triglot.GroupHost"]
