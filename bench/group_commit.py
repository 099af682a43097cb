"""Group commit: 64 producers that wait for acks=all, beside one append and one sync per request.

The producers are clients with a connection each, whose requests cost more than their share of a
sync on a fast disk; and, to see group commit alone, waiters in the process that append the same
batch to a log and wait for it.

The bare loop appends the bytes of a request's batch to a file and calls `fdatasync`, again and
again, as a broker would that syncs for each request alone. It runs just before and just after the
producers, on the broker's core and on the same disk, for disks have their moods. What is promised:
ten times the acknowledgements, and a p99 of at most three times that of a single `fdatasync`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import frames, machine, raw
from bench.case import Case, Figure
from bench.servers import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-commit"
VALUE_BYTES = 100
RATE, P50, P99 = "acks/s", "p50 ms", "p99 ms"
BARE_RATE, BARE_P50, BARE_P99 = "bare loop syncs/s", "one fdatasync p50 ms", "one fdatasync p99 ms"
MORE, LONGER = "acks/s / bare loop", "p99 / p99 of one fdatasync"


GROUP = f"Group commit, acks=all, one {VALUE_BYTES} B record a request"


def _figures(*, more: float, longer: float) -> tuple[Figure, ...]:
    return (
        *(Figure(RATE, 0), Figure(P50), Figure(P99)),
        *(Figure(BARE_RATE, 0), Figure(BARE_P50, 3), Figure(BARE_P99, 3)),
        *(Figure(MORE, 1, more), Figure(LONGER, 1, longer)),
    )


def _found(rate: float, p50_ms: float, p99_ms: float, bare_s: list[float]) -> dict[str, float]:
    bare_s.sort()
    bare_rate, bare_p99_ms = len(bare_s) / sum(bare_s), bare_s[len(bare_s) * 99 // 100] * 1000
    return {
        **{RATE: rate, P50: p50_ms, P99: p99_ms},
        **{BARE_RATE: bare_rate, BARE_P50: bare_s[len(bare_s) // 2] * 1000, BARE_P99: bare_p99_ms},
        **{MORE: rate / bare_rate, LONGER: p99_ms / bare_p99_ms},
    }


class Producers(Case):
    """Each has a connection, sends one record and waits for its ack."""

    group = GROUP

    def __init__(self, *, producers: int, more: float, longer: float) -> None:
        self.name = f"{producers} producer{'s' if producers > 1 else ''}"
        self.figures = _figures(more=more, longer=longer)
        self._producers = producers

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        batch = frames.record_batch(1, VALUE_BYTES)
        request = frames.produce_frame(TOPIC, batch, acks=-1)
        took_s = bare_loop(batch, folder, scale.latency_s / 2)
        server.create_topic(TOPIC)
        try:
            seconds = ("-t", str(scale.latency_s), "-u", str(scale.latency_s / 5))
            ran = raw.blast(
                *(server, [request], "-c", str(self._producers), "-s", *seconds),
                error_position=frames.produce_error_position(TOPIC),
            )
        finally:
            server.delete_topic(TOPIC)
        took_s += bare_loop(batch, folder, scale.latency_s / 2)
        rate = ran.answers / ran.seconds
        return _found(rate, ran.p50_us / 1000, ran.p99_us / 1000, took_s)


class Waiters(Case):
    """No sockets: a process of its own, on the broker's core, with the broker's group commit."""

    group = GROUP

    def __init__(self, *, waiters: int, more: float, longer: float) -> None:
        self.name = f"{waiters} waiters in the process, no sockets"
        self.figures = _figures(more=more, longer=longer)
        self._waiters = waiters

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if server.name != "triglot":
            return {}
        command = [sys.executable, "-m", "bench.group_commit"]
        command += [str(self._waiters), str(scale.latency_s)]
        with machine.on_broker_core():
            ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise RuntimeError(f"{self.name}: {ran.stderr.strip()}")
        found: dict[str, float] = json.loads(ran.stdout)
        return found


def bare_loop(data: bytes, folder: Path, seconds: float) -> list[float]:
    """Seconds that each append with its sync took, for so long and at least once."""
    took_s: list[float] = []
    with machine.on_broker_core(), (folder / "bare").open("wb", buffering=0) as file:
        descriptor = file.fileno()
        last_s = time.perf_counter()
        end_s = last_s + seconds
        while not took_s or last_s < end_s:
            os.write(descriptor, data)
            os.fdatasync(descriptor)
            now_s = time.perf_counter()
            took_s.append(now_s - last_s)
            last_s = now_s
    return took_s


CASES: tuple[Case, ...] = (
    Producers(producers=1, more=0.6, longer=2.0),
    Producers(producers=64, more=13.0, longer=3.0),
    Waiters(waiters=64, more=13.0, longer=3.0),
)


class Disk:
    """In the place of the broker's notion of a full disk: there is room."""

    def noticed(self, error: Exception) -> bool:
        return False


def waited(waiters: int, folder: str, seconds: float) -> tuple[float, list[float]]:
    """Acks a second, and seconds that each waited; they begin again at once."""
    from broker.event_loop import new_event_loop
    from broker.producing.group_commit import GroupCommit
    from broker.server import SWITCH_INTERVAL_S
    from broker.workers import Worker
    from config.broker import BrokerSettings
    from config.topic import TopicSettings
    from protocol.records.layout import HEADER
    from storage.disk import DiskFilesystem
    from storage.recovery import open_log
    from storage.syncing import one_by_one

    sys.setswitchinterval(SWITCH_INTERVAL_S)
    loop = new_event_loop()
    worker = Worker(loop, "sync")
    commit = GroupCommit(
        loop,
        worker,
        one_by_one,
        Disk(),  # type: ignore[arg-type]
        write_queued=lambda: None,
        time_s=time.perf_counter,
    )
    log, _ = open_log(DiskFilesystem(), folder, TopicSettings.of(BrokerSettings(), {}))
    batch = frames.record_batch(1, VALUE_BYTES)
    took_s: list[float] = []
    end_s = time.perf_counter() + seconds

    def again() -> None:
        view = memoryview(bytearray(batch))
        start_s = time.perf_counter()
        log.append(view, HEADER.unpack_from(view))
        log.write()

        def done(failed: object) -> None:
            now_s = time.perf_counter()
            took_s.append(now_s - start_s)
            if now_s < end_s:
                # In a turn of its own, as a request comes in.
                loop.call_soon(again)
            else:
                loop.stop()

        commit.wait((log,), done)

    for _ in range(waiters):
        loop.call_soon(again)
    loop.run_forever()
    worker.stop()
    log.close(clean=False)
    return len(took_s) / seconds, sorted(took_s)


def main(waiters: str, seconds: str) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        batch, path = frames.record_batch(1, VALUE_BYTES), Path(folder)
        bare_s = bare_loop(batch, path, float(seconds) / 2)
        (path / "log-0").mkdir()
        rate, took_s = waited(int(waiters), str(path / "log-0"), float(seconds))
        bare_s += bare_loop(batch, path, float(seconds) / 2)
        p50_s, p99_s = took_s[len(took_s) // 2], took_s[len(took_s) * 99 // 100]
        print(json.dumps(_found(rate, p50_s * 1000, p99_s * 1000, bare_s)))


if __name__ == "__main__":
    main(*sys.argv[1:])
