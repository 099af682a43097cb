"""`python -m bench`: measure, print, and write a table to bench/results."""

from __future__ import annotations

import argparse
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bench import (
    case,
    commands,
    compaction,
    convert,
    create_topics,
    fetch,
    group_commit,
    group_heartbeats,
    group_join,
    index_memory,
    latency,
    machine,
    many_partitions,
    metadata_load,
    metadata_snapshot,
    offset_commits,
    offset_fetch,
    offset_load,
    offset_memory,
    old_readers,
    produce,
    recovery,
    report,
    single_records,
    startup,
    time_search,
    tls,
    transaction_load,
    transactional_data,
    transactions,
    validation,
)
from bench.servers import Floor, Running, Server, Started, Triglot

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUPS: dict[str, tuple[case.Case, ...]] = {
    "produce": produce.CASES,
    "fetch": fetch.CASES,
    "single": single_records.CASES,
    "latency": latency.CASES,
    "old-readers": old_readers.CASES,
    "startup": startup.CASES,
    "recovery": recovery.CASES,
    "group-commit": group_commit.CASES,
    "time-search": time_search.CASES,
    "many-partitions": many_partitions.CASES,
    "create-topics": create_topics.CASES,
    "compaction": compaction.CASES,
    "offset-commits": offset_commits.CASES,
    "offset-load": offset_load.CASES,
    "offset-memory": offset_memory.CASES,
    "offset-fetch": offset_fetch.CASES,
    "group-heartbeats": group_heartbeats.CASES,
    "group-join": group_join.CASES,
    "metadata-load": metadata_load.CASES,
    "transactions": transactions.CASES,
    "transactional-data": transactional_data.CASES,
    "transaction-load": transaction_load.CASES,
}
#: Only when it is named: a minute or more in each round.
LONG: dict[str, tuple[case.Case, ...]] = {
    "index-memory": index_memory.CASES,
    "metadata-snapshot": metadata_snapshot.LONG_CASES,
    "validation": validation.CASES,
    "offset-commits-long": offset_commits.LONG_CASES,
    "tls": tls.CASES,
    "commands": commands.CASES,
}
#: What needs no server. The columns of its table are the loops over records, in C and in Python.
SERVERLESS: dict[str, tuple[case.Case, ...]] = {
    "convert": convert.CASES,
    "checks": convert.CHECKS,
}
RESULTS = Path(__file__).parent / "results"

#: Apache Kafka is loaded for so long before the first round, or it is measured uncompiled.
WARM_UP_S = 60.0


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure triglot beside a C floor and a peer."
    )
    add = parser.add_argument
    add("--rounds", type=int, default=5, help="interleaved rounds; medians are taken (5)")
    add("--quick", action="store_true", help="one third of the load, two rounds: a first look")
    add(
        "--tiny",
        action="store_true",
        help="proves that each kind of load runs; its figures mean nothing",
    )
    add(
        "--only",
        choices=(*GROUPS, *LONG, *SERVERLESS),
        action="append",
        metavar="NAME",
        help=f"one of {', '.join((*GROUPS, *LONG))}; or, each a table of its own, "
        f"{' or '.join(SERVERLESS)}",
    )
    add(
        "--against",
        action="append",
        metavar="SERVER",
        help="triglot, floor, kafka, or NAME=127.0.0.1:PORT@PID of a running one; the first is "
        "compared with the others (triglot and floor). kafka-848 is kafka with KIP-848 switched on",
    )
    add("--warm-up", type=float, default=None, help=f"seconds of load for kafka ({WARM_UP_S:.0f})")
    add("--json", action="store_true", help="print JSON instead of the table")
    add("--output", type=Path, help="the table's file; beside it one ending in .json")
    return parser.parse_args(arguments)


def server_of(name: str, folder: Path) -> Server:
    """Starts the server of this name, or finds a running one. It is ready on return."""
    if "=" in name:
        return Running(name)
    if name in convert.TWINS:
        return convert.Twin(name)
    kinds: dict[str, type[Started]] = {"triglot": Triglot, "floor": Floor}
    if name.startswith("kafka"):
        from bench.kafka_peer import ConsumerKafka, Kafka

        kinds |= {"kafka": Kafka, "kafka-848": ConsumerKafka}
    if name.endswith(("-tls", "-rules")):
        from bench.secured_servers import RuledTriglot, SecuredKafka, SecuredTriglot

        kinds |= {one.name: one for one in (RuledTriglot, SecuredKafka, SecuredTriglot)}
    if name not in kinds:
        raise SystemExit(f"--against {name}: neither triglot, floor, kafka nor NAME=ADDRESS@PID")
    server = kinds[name](folder / name)
    try:
        server.wait_until_ready()
    except BaseException:
        server.stop()
        raise
    return server


class Measuring:
    """Servers that are up, and the cases to run against them."""

    def __init__(
        self, servers: Sequence[Server], cases: Sequence[case.Case], scale: case.Scale
    ) -> None:
        self.servers = servers
        self.cases = cases
        self.scale = scale
        self.results = report.Results(cases, [server.name for server in servers])

    def prepare(self, *, warm_up_s: float) -> None:
        for each in self.cases:
            for server in self.servers:
                each.prepare(server, self.scale)
        for server in self.servers:
            if isinstance(server, Started) and not server.starts_quickly and warm_up_s:
                _say(f"warming {server.name} up for {warm_up_s:.0f} s")
                self._warm(server, warm_up_s)

    def round(self, number: int) -> None:
        """Every case against every server, in an order of chance."""
        shuffled = list(self.servers)
        for each in self.cases:
            random.shuffle(shuffled)
            for server in shuffled:
                found = self._run(each, server)
                for figure, value in found.items():
                    self.results.add(each, figure, server.name, value)
                shown = ", ".join(f"{figure} {value:.4g}" for figure, value in found.items())
                _say(f"{number}  {server.name:8}  {each.group}, {each.name}: {shown}")

    def _warm(self, server: Server, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for each in self.cases:
                if each.group != startup.Start.group:
                    self._run(each, server)

    def _run(self, each: case.Case, server: Server) -> dict[str, float]:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            try:
                return dict(each.run(server, self.scale, Path(folder)))
            except subprocess.TimeoutExpired as error:
                _say(f"{server.name} did not come to an end: {each.name} ({error.timeout:.0f} s)")
                return {}


def _without_paths(arguments: Sequence[str]) -> list[str]:
    """The arguments as a report shows them: where it was written to is nobody's business."""
    kept = list(arguments)
    if "--output" in kept:
        at = kept.index("--output")
        del kept[at : at + 2]
    return [argument for argument in kept if not argument.startswith("--output=")]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> None:
    options = parsed(arguments)
    scale = case.TINY if options.tiny else case.QUICK if options.quick else case.FULL
    rounds = 1 if options.tiny else min(options.rounds, 2) if options.quick else options.rounds
    warm_up_s = WARM_UP_S if options.warm_up is None else options.warm_up
    groups, columns = options.only or list(GROUPS), ["triglot", "floor"]
    serverless = SERVERLESS.keys() & set(groups)
    if serverless:
        if len(groups) > 1 or options.against:
            raise SystemExit(f"--only {groups[0]} needs no server and goes with no other load")
        columns = list(convert.TWINS)
    known = {**GROUPS, **LONG, **SERVERLESS}
    cases = [each for name in groups for each in known[name]]
    if options.tiny and not serverless:
        cases = list({type(each): each for each in cases}.values())
    command = shlex.join(["python", "-m", "bench", *_without_paths(arguments)])
    run = report.Run(machine.described(), command, rounds)
    machine.pin_load()
    # With it every start of a server would compile what has changed since it was installed.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as started:
        servers: list[Server] = []
        for name in options.against or columns:
            server = server_of(name, Path(folder))
            started.callback(server.stop)
            servers.append(server)
        measuring = Measuring(servers, cases, scale)
        measuring.prepare(warm_up_s=0 if options.tiny else warm_up_s)
        for number in range(1, rounds + 1):
            measuring.round(number)
    results = measuring.results
    table, data = report.as_markdown(results, run), report.as_json(results, run)
    print(data if options.json else table)
    output = options.output
    if output is None and not (options.tiny or options.quick):
        suffix = f"-{groups[0]}" if serverless else ""
        output = RESULTS / f"{run.machine['date']}{suffix}.md"
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(table)
        output.with_suffix(".json").write_text(data)


if __name__ == "__main__":
    main(sys.argv[1:])
