"""Compaction of a log of keyed records, and what producers to another topic feel of it meanwhile.

A gigabyte of records of 1 KB, a tenth of them with distinct keys, chosen by chance, is written by
librdkafka. Then the topic's policy becomes compact. The broker runs on its core, the process that
it starts for the work on the core of the load, which sends records to another topic in an open
loop: first alone, then for as long as the cleaning takes.

The rate is in bytes of the log before, over the time from the decision to the last checkpoint, and
over the processor time of that process alone. What is promised: 100 MB/s on one core, the map of
keys within `log.cleaner.dedupe.buffer.size`, and a p99 of acks=1 below 5 ms meanwhile.
"""

from __future__ import annotations

import http.client
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from bench import frames, librdkafka, machine, raw
from bench.case import Case, Figure
from bench.servers import Triglot
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.case import Scale
    from bench.servers import Server

TOPIC, OTHER = "bench-compaction", "bench-other"
VALUE_BYTES = 1_000
RATE = 1_000
PROCESS = b"cleaner_process"
PATIENCE_S = 300.0

PER_S, PER_CPU_S = "MB/s", "MB/s of processor time"
RECORDS_LEFT, MAP_MIB, RSS_MIB = "% of records left", "map of keys MiB", "RSS MiB of the process"
ALONE_P50, ALONE_P99 = "p50 ms alone", "p99 ms alone"
WITH_P50, WITH_P99, WITH_MAX = "p50 ms meanwhile", "p99 ms meanwhile", "worst p99 of a second, ms"


class CleaningTriglot(Triglot):
    """With counters, and a cleaner that looks more often than every 15 s."""

    metrics_port = 0

    def _prepare(self) -> None:
        self.metrics_port = free_port()

    def _command(self) -> Sequence[str]:
        command = [*super()._command(), "--set", "log.cleaner.backoff.ms=200"]
        return [*command, "--set", f"metrics.port={self.metrics_port}"]

    def counter(self, name: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=10)
        try:
            connection.request("GET", "/metrics")
            rows = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        return next(int(row.split()[1]) for row in rows if row.startswith(f"triglot_{name} "))

    def cleaner_pid(self) -> int:
        """The process beside it, once there is one."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            for path in Path("/proc").glob("[0-9]*"):
                try:
                    parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                    if parent == self.pid and PROCESS in (path / "cmdline").read_bytes():
                        return int(path.name)
                except OSError:
                    continue
            time.sleep(0.002)
        raise RuntimeError(f"no process for compaction was started:\n{self.output()}")


class Compaction(Case):
    group = "Compaction, and produce to another topic meanwhile"
    name = f"keyed records of {VALUE_BYTES // 1000} KB, 10 % distinct; {RATE} records/s, acks=1"
    figures = (
        *(Figure(PER_S, 0, 130), Figure(PER_CPU_S, 0, 160), Figure(RECORDS_LEFT, 1, 10)),
        *(Figure(MAP_MIB, 1, 5), Figure(RSS_MIB, 0, 60)),
        *(Figure(ALONE_P50, 2, 0.1), Figure(ALONE_P99, 2, 0.4)),
        *(Figure(WITH_P50, 2, 0.15), Figure(WITH_P99, 2, 1.5), Figure(WITH_MAX, 2, 4)),
    )

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if server.name != "triglot":
            return {}
        one = CleaningTriglot(folder / server.name)
        try:
            one.wait_until_ready()
            one.create_topic(TOPIC)
            one.create_topic(OTHER)
            _fill(one, scale.recovered_bytes // 2)
            alone = _produce(one, scale.latency_s)
            return {
                **{ALONE_P50: alone.p50_us / 1000, ALONE_P99: alone.p99_us / 1000},
                **_compacted(one, min(scale.latency_s, 1.0)),
            }
        finally:
            one.stop()


def _fill(server: Server, size: int) -> None:
    count = size // VALUE_BYTES
    chance = random.Random(1)
    noise = chance.randbytes(VALUE_BYTES * 64)
    with librdkafka.producers(server, TOPIC, batch_size=100_000) as (producer,):
        for _ in range(count):
            start = chance.randrange(len(noise) - VALUE_BYTES)
            key = b"%08d" % chance.randrange(count // 10)
            value = noise[start : start + VALUE_BYTES]
            while True:
                try:
                    producer.produce(TOPIC, value, key, partition=0)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush(PATIENCE_S)


def _produce(server: Server, seconds: float) -> raw.Blasted:
    request = frames.produce_frame(OTHER, frames.record_batch(1, 100), acks=1)
    timing = ("-t", str(seconds), "-u", str(seconds / 10))
    return raw.blast(
        *(server, [request], "-c", "4", "-r", str(RATE), *timing),
        error_position=frames.produce_error_position(OTHER),
    )


def _compacted(server: CleaningTriglot, seconds: float) -> dict[str, float]:
    """Figures of one cleaning, with the load of one stretch after the other until it is done."""
    _make_compacted(server)
    pid = server.cleaner_pid()
    os.sched_setaffinity(pid, {machine.LOAD_CORE})
    ran: list[raw.Blasted] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while server.counter("cleanings_total") < 1:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the log was not compacted:\n{server.output()}")
        ran.append(_produce(server, seconds))
    # The last stretch reached beyond the end, the first has the start of the process in it.
    within = ran[:-1] or ran
    answers = sum(one.answers for one in within)
    read = server.counter("cleaning_read_bytes_total")
    records = server.counter("cleaning_read_records_total")
    return {
        PER_S: read / 1e6 / server.counter("cleaning_last_seconds"),
        PER_CPU_S: read / 1e6 / machine.cpu_seconds(pid),
        RECORDS_LEFT: 100 * server.counter("cleaning_kept_records_total") / records,
        MAP_MIB: server.counter("cleaning_last_map_bytes") / 2**20,
        RSS_MIB: _peak_mib(pid),
        WITH_P50: sum(one.p50_us * one.answers for one in within) / answers / 1000,
        WITH_P99: sum(one.p99_us * one.answers for one in within) / answers / 1000,
        WITH_MAX: max(one.p99_us for one in within) / 1000,
    }


def _make_compacted(server: CleaningTriglot) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})
    policy = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[policy])
    for future in admin.incremental_alter_configs([wanted]).values():
        future.result(timeout=30)


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no VmHWM")


CASES: tuple[Case, ...] = (Compaction(),)
