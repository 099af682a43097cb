"""The cost of a snapshot of 100,000 partitions to those who produce meanwhile.

A broker is started on the directory of `metadata_load`, which makes its 100,000 folders first. Then
records are produced at a fixed rate while a setting of a topic is changed five times a second. In
turn, window by window, no snapshot is due and each change makes one due
(controller.snapshot.minimum.records is changed on the running broker), so that one is being written
nearly all of the time. The figures are medians of the windows: a broker of 100,000 logs has other
background tasks, of which one can fill a window. Limit: 5 ms more at the 99th percentile.

Estimate, on paper: 0.6 s of Python on another thread, which gives the interpreter back after half a
millisecond; a produce request wants it some four times: 2 ms more.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

from bench import frames, raw
from bench.case import Case, Figure
from bench.metadata_load import PARTITIONS_OF_A_TOPIC, in_a_process
from bench.servers import Triglot
from client.connection import Connection
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC, BROKER = 2, 4
PRODUCED_TO = "bench-snapshot"
RATE = 500
CHANGES_EVERY_S = 0.2
P99, P99_SNAPSHOT, MORE = "p99 ms", "p99 ms, snapshots", "p99 ms more"
P50, P50_SNAPSHOT, WRITTEN = "p50 ms", "p50 ms, snapshots", "snapshots"
TIMEOUT_S = 60.0
SETTLE_S = 5.0
BETWEEN_S = 1.0
"""So long after the change a snapshot that was due before is written."""
PAIRS = 5
MINIMUM_RECORDS = "controller.snapshot.minimum.records"
NEVER, ALWAYS = "0", "1"


class ManyTopics(Triglot):
    """Started on a directory whose folders are still to be made."""

    START_TIMEOUT_S = 600.0

    def _command(self) -> Sequence[str]:
        rules = "metadata.log.max.record.bytes.between.snapshots=1000000000"
        return [*super()._command(), "--set", rules]


class SnapshotWhileProducing(Case):
    group = "Produce while the metadata of 100,000 partitions is written as a snapshot"

    def __init__(self, acks: int, p99_ms: float) -> None:
        self.name = f"{RATE} records/s, acks={'all' if acks == -1 else acks}"
        self.figures = (
            *(Figure(P50, 2, 0.3), Figure(P50_SNAPSHOT, 2, 1.0)),
            *(Figure(P99, 2, p99_ms), Figure(P99_SNAPSHOT, 2, p99_ms + 2), Figure(MORE, 2, 2)),
            Figure(WRITTEN, 0, 5),
        )
        self._acks = acks

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if server.name != "triglot":
            return {}
        data = folder / "many"
        topics = max(1, scale.partitions * 10 // PARTITIONS_OF_A_TOPIC)
        in_a_process("make", str(data), str(topics))
        broker = ManyTopics(data)
        try:
            broker.wait_until_ready()
            # The folders just made would be written back meanwhile, and every sync wait for them.
            os.sync()
            time.sleep(SETTLE_S)
            broker.create_topic(PRODUCED_TO)
            windows: dict[str, list[raw.Blasted]] = {NEVER: [], ALWAYS: []}
            written = 0
            with changing_settings(broker.port, data) as seen:
                for _ in range(PAIRS):
                    for minimum, measured in windows.items():
                        set_config(broker.port, BROKER, "", MINIMUM_RECORDS, minimum)
                        time.sleep(BETWEEN_S)
                        seen.clear()
                        measured.append(self._latency(broker, scale))
                        written += len(seen) - 1  # one was there
        finally:
            broker.stop()
        if written < PAIRS:
            raise RuntimeError("hardly a snapshot was written")
        before, during = (
            [median(getattr(one, name) for one in measured) / 1000 for name in ("p50_us", "p99_us")]
            for measured in windows.values()
        )
        return {
            **{P50: before[0], P50_SNAPSHOT: during[0], P99: before[1], P99_SNAPSHOT: during[1]},
            MORE: during[1] - before[1],
            WRITTEN: written,
        }

    def _latency(self, broker: Server, scale: Scale) -> raw.Blasted:
        request = frames.produce_frame(PRODUCED_TO, frames.record_batch(1, 100), acks=self._acks)
        return raw.blast(
            *(broker, [request], "-c", "4", "-r", str(RATE)),
            *("-t", str(max(1.0, scale.latency_s)), "-u", str(scale.latency_s / 10)),
            error_position=frames.produce_error_position(PRODUCED_TO),
        )


def latest_snapshot(data: Path) -> int:
    """The end offset in the name of the newest snapshot, 0 without one."""
    found = (data / "__cluster_metadata-0").glob("*.checkpoint")
    return max((int(path.name.partition("-")[0]) for path in found), default=0)


def set_config(port: int, kind: int, resource: str, name: str, value: str) -> None:
    """Change one setting of a topic or of all brokers."""
    changed = IncrementalAlterConfigsRequest.Resource(
        resource_type=kind,
        resource_name=resource,
        configs=[
            IncrementalAlterConfigsRequest.Resource.Config(
                name=name, config_operation=0, value=value
            )
        ],
    )
    connection = Connection("127.0.0.1", port, timeout_s=TIMEOUT_S)
    try:
        request = IncrementalAlterConfigsRequest(resources=[changed], validate_only=False)
        (answer,) = connection.call(request, IncrementalAlterConfigsResponse).responses
    finally:
        connection.close()
    if answer.error_code:
        raise RuntimeError(f"{name} was not set: {answer.error_message}")


@contextmanager
def changing_settings(port: int, data: Path) -> Iterator[set[int]]:
    """Change a setting of a topic every CHANGES_EVERY_S meanwhile, and note the newest snapshots
    that there were."""
    stop = threading.Event()
    seen: set[int] = set()

    def change() -> None:
        number = 0
        while not stop.wait(CHANGES_EVERY_S):
            number += 1
            seen.add(latest_snapshot(data))
            set_config(port, TOPIC, "topic-0000", "retention.ms", str(86_400_000 + number))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


LONG_CASES = (SnapshotWhileProducing(1, 0.6), SnapshotWhileProducing(-1, 1.5))
