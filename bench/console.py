"""The console with 5,000 topics and 2,000 groups: `python -m bench.console`.

How long each page takes, and what it costs the console and the broker in CPU; what the console adds
in memory (what is its own, and its share of what it has in common with others: PSS); what it costs
the broker when nobody looks; and how long one record takes to be acknowledged while somebody clicks
on one page after the other, beside the same without.

Estimate: an answer of Metadata with 5,000 topics is decoded in 60 ms, a page of 50 rows rendered in
5, the figures of 5,000 topics are made in 60 ms of the broker and read in 15: 150 ms for the page
of topics. Of groups 2,000 names and 10,000 lags: 150 ms. Memory: 21 MiB for Python and the
framework, 5 for ours, 6 for 5,000 topics and an hour of them: 32 MiB. A click delays a record by
what it costs the broker in one piece: the answer of Metadata, 20 ms at p99.

With `--rules` people log in, and the one who looks may read every second topic, by a rule for each:
the broker then looks for a rule for each topic that a page asks for, 0.2 us each (estimate: 5 ms
more for the page of topics, twice that for the first one after a login).
"""

from __future__ import annotations

import argparse
import http.client
import re
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.machine import cpu_seconds, described
from client.cluster import Cluster, TopicPartition
from config.jaas import PLAIN_LOGIN_MODULE
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.records.builder import build_batch
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.console import ConsoleClient
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPICS, GROUPS = 5_000, 2_000
PARTITIONS_OF_A_GROUP = 5
TOPICS_OF_A_REQUEST = 500
ROUNDS = 9
RECORDS = 3_000
PAUSE_S = 0.002
IDLE_S = 40.0
"""Two looks at the groups."""
PAGES = (
    "/topics",
    "/topics?q=topic-1&sort=size",
    "/topics?page=100",
    "/topics/topic-7",
    "/topics/topic-7/records",
    "/topics/topic-7/records?offset=42",
    "/groups",
    "/groups?sort=name&page=40",
    "/group?id=group-7",
    "/clients",
)


USER, PASSWORD = "alice", "alice-secret"
RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{PLAIN_LOGIN_MODULE} required user_{USER}="{PASSWORD}";'
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.console",
        description="How long the pages of the console take, and what it costs the broker beside "
        "it: CPU, memory, and the latency of who produces while somebody clicks.",
    )
    parser.add_argument("--topics", type=int, default=TOPICS, help=f"default {TOPICS}")
    parser.add_argument("--groups", type=int, default=GROUPS, help=f"default {GROUPS}")
    parser.add_argument(
        "--rules",
        action="store_true",
        help="with access rules: who looks logs in, and may read every second topic",
    )
    wanted = parser.parse_args()
    print(f"{wanted.topics:,} topics, {wanted.groups:,} groups; {described()}")
    with tempfile.TemporaryDirectory() as folder:
        settings = {}
        if wanted.rules:
            doors = (
                f"{name}://127.0.0.1:{free_port()}" for name in ("PLAINTEXT", "SASL_PLAINTEXT")
            )
            settings = {**RULES, "listeners": ",".join(doors)}
        arguments = ("--console", "127.0.0.1:0")
        broker = BrokerProcess(Path(folder), settings=settings, arguments=arguments)
        broker.START_TIMEOUT_S = 120
        with broker:
            reader = ConsoleClient(broker)
            _fill(broker, wanted.topics, wanted.groups)
            if wanted.rules:
                _allow(broker, wanted.topics)
                answer = reader.send(
                    "/login", "/login", user=USER, password=PASSWORD, mechanism="PLAIN"
                )
                if answer.fields.get("location") != "/topics":
                    raise RuntimeError(f"the login is answered with {answer.status}")
            _measure(broker, reader)


def _measure(broker: BrokerProcess, reader: ConsoleClient) -> None:
    (console,) = map(
        int, Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    )
    before = cpu_seconds(broker.pid), cpu_seconds(console)
    time.sleep(IDLE_S)
    idle = cpu_seconds(broker.pid) - before[0], cpu_seconds(console) - before[1]
    print(f"nobody looks: broker {idle[0] / IDLE_S:.2%} of a core, console {idle[1] / IDLE_S:.2%}")
    print(f"| {'page':36} | median ms | worst ms | console CPU ms | broker CPU ms | KiB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for path in PAGES:
        _get(reader, path)
        before = cpu_seconds(broker.pid), cpu_seconds(console)
        took = []
        for _ in range(ROUNDS):
            seconds, size = _get(reader, path)
            took.append(seconds)
        spent = (
            (cpu_seconds(console) - before[1]) / ROUNDS,
            (cpu_seconds(broker.pid) - before[0]) / ROUNDS,
        )
        print(
            f"| {path:36} | {1000 * statistics.median(took):.0f} | {1000 * max(took):.0f} "
            f"| {1000 * spent[0]:.0f} | {1000 * spent[1]:.0f} | {size / 1024:.0f} |"
        )
    print(f"memory of the console: {_memory(console)}")
    quiet = _acknowledged(broker)
    stop = threading.Event()
    clicks = threading.Thread(target=_click, args=(reader, stop))
    clicks.start()
    clicked = _acknowledged(broker)
    stop.set()
    clicks.join()
    for name, times in (("nobody clicks", quiet), ("somebody clicks", clicked)):
        p50, p99 = _quantile(times, 0.5), _quantile(times, 0.99)
        print(f"a record, {name}: p50 {1000 * p50:.2f} ms, p99 {1000 * p99:.2f} ms")
    print(f"load average {Path('/proc/loadavg').read_text().strip()}")


def _fill(broker: BrokerProcess, topics: int, groups: int) -> None:
    kind = CreateTopicsRequest.Topic
    with Caller(broker.host, broker.port) as caller:
        for first in range(0, topics, TOPICS_OF_A_REQUEST):
            made = [
                kind(
                    name=f"topic-{number}",
                    num_partitions=1,
                    replication_factor=1,
                    assignments=[],
                    configs=[],
                )
                for number in range(first, min(topics, first + TOPICS_OF_A_REQUEST))
            ]
            caller.call(CreateTopicsRequest(topics=made, timeout_ms=60_000))
    records = [(1_700_000_000_000, b"key", b'{"n": %d}' % number, ()) for number in range(100)]
    with Cluster(broker.bootstrap) as client:
        for number in range(min(200, topics)):
            client.produce(TopicPartition(f"topic-{number}", 0), [build_batch(records)])
        for number in range(groups):
            places = [
                TopicPartition(f"topic-{(number + step) % topics}", 0)
                for step in range(PARTITIONS_OF_A_GROUP)
            ]
            client.commit_offsets(f"group-{number}", dict.fromkeys(places, number % 100))


def _allow(broker: BrokerProcess, topics: int) -> None:
    """Every second topic, all groups, and what the cluster tells."""
    given = [(ResourceType.TOPIC, f"topic-{number}") for number in range(1, topics, 2)]
    given += [(ResourceType.GROUP, "*"), (ResourceType.CLUSTER, "kafka-cluster")]
    rules = [
        CreateAclsRequest.Creation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=PatternType.LITERAL,
            principal=f"User:{USER}",
            host="*",
            operation=Operation.DESCRIBE if kind == ResourceType.CLUSTER else Operation.READ,
            permission_type=Permission.ALLOW,
        )
        for kind, name in given
    ]
    with Caller(broker.host, broker.port) as caller:
        for first in range(0, len(rules), TOPICS_OF_A_REQUEST):
            request = CreateAclsRequest(creations=rules[first : first + TOPICS_OF_A_REQUEST])
            answer = caller.call(request)
            if {one.error_code for one in answer.results} != {0}:
                raise RuntimeError(f"the rules are refused: {answer.results[0]}")


def _get(reader: ConsoleClient, path: str) -> tuple[float, int]:
    """Seconds, and bytes."""
    began = time.perf_counter()
    answer = reader.get(path)
    took = time.perf_counter() - began
    if answer.status != http.client.OK:
        raise RuntimeError(f"{path} is answered with {answer.status}")
    return took, len(answer.body)


def _memory(pid: int) -> str:
    found = dict(
        re.findall(
            r"^(Rss|Pss|Private_Dirty): +(\d+) kB",
            Path(f"/proc/{pid}/smaps_rollup").read_text(),
            re.M,
        )
    )
    return ", ".join(f"{name} {int(size) / 1024:.1f} MiB" for name, size in found.items())


def _acknowledged(broker: BrokerProcess) -> list[float]:
    """Seconds of each of some records, one at a time."""
    batch = build_batch([(1_700_000_000_000, None, b"x" * 100, ())])
    took = []
    with Cluster(broker.bootstrap) as client:
        for _ in range(RECORDS):
            began = time.perf_counter()
            client.produce(TopicPartition("topic-0", 0), [batch])
            took.append(time.perf_counter() - began)
            time.sleep(PAUSE_S)
    return took


def _click(reader: ConsoleClient, stop: threading.Event) -> None:
    while not stop.is_set():
        for path in PAGES:
            _get(reader, path)
            time.sleep(0.1)


def _quantile(times: Sequence[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


if __name__ == "__main__":
    main()
