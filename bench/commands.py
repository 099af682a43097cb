"""`triglot produce` and `triglot consume` as processes, from a file and to a file, beside kcat.

kcat is librdkafka with a command line in C, and the peer where it is installed. The time of a
process is all of it: its start, its connection, its end. Both send and print lines of 100 bytes;
what comes out of a consumer is compared with what went in.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bench.case import Case, Figure
from bench.servers import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-commands"
LINE = b"y" * 100 + b"\n"
RATE, CPU, PEER_CPU, RATIO = "records/s", "CPU us/record", "kcat: CPU us/record", "triglot / kcat"


class Commands(Case):
    """Both ways through a topic of one partition."""

    group = "Commands: lines of 100 B to a topic and back"
    producing: bool

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if server.name == "floor":
            return {}  # it has no topics to ask for
        count = scale.produced_bytes_of_small // len(LINE)
        source, printed = folder / "source", folder / "printed"
        with source.open("wb") as file:
            for _ in range(0, count, 1000):
                file.write(LINE * min(1000, count))
        count = source.stat().st_size // len(LINE)
        server.create_topic(TOPIC)
        try:
            at = ("--bootstrap", server.bootstrap)
            tool = [sys.executable, "-m", "tools"]
            produced = ran([*tool, "produce", TOPIC, str(source), *at], printed)
            consumed = ran([*tool, "consume", TOPIC, "--until-end", *at], printed)
            if not filecmp.cmp(source, printed, shallow=False):
                raise RuntimeError("what came out is not what went in")
            seconds, cpu_s = produced if self.producing else consumed
            figures = {RATE: count / seconds, CPU: cpu_s / count * 1e6}
            kcat = shutil.which("kcat")
            if kcat is not None:
                whole = [kcat, "-b", server.bootstrap, "-t", TOPIC]
                way = ["-P", "-l", str(source)] if self.producing else ["-C", "-e", "-q"]
                peer_us = ran([*whole, *way], printed)[1] / count * 1e6
                figures |= {PEER_CPU: peer_us, RATIO: figures[CPU] / peer_us}
        finally:
            server.delete_topic(TOPIC)
        return figures


class Produce(Commands):
    name = "triglot produce"
    figures = (Figure(RATE, 0, 400_000), Figure(CPU, 2, 1.8), Figure(PEER_CPU), Figure(RATIO, 1, 2))
    producing = True


class Consume(Commands):
    name = "triglot consume"
    figures = (Figure(RATE, 0, 330_000), Figure(CPU, 2, 2.5), Figure(PEER_CPU), Figure(RATIO, 1, 4))
    producing = False


def ran(command: Sequence[str], printed: Path) -> tuple[float, float]:
    """Seconds on the clock, and of CPU, of a process that prints to a file."""
    with printed.open("wb") as output:
        start_s = time.perf_counter()
        process = subprocess.Popen(command, cwd=CHECKOUT, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start_s
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[:5]} ended with {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime


CASES: tuple[Case, ...] = (Produce(), Consume())
