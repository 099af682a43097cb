"""Conversion between the record formats, and what it saves not to convert: no server, no network.

The columns are the loops in C and in Python (`protocol.records.transcode`). Each round of a case
runs in a process of its own, in which the loops in C can be hidden, on the core of the broker.
Figures are CPU time of the fastest of many repetitions, since a neighbour can only add to it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from bench import machine, validation
from bench.case import Case, Figure
from bench.servers import CHECKOUT, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from bench.case import Scale
    from protocol.records.prepare import Prepared

TWINS = ("compiled", "interpreted")
COUNT = 1_000
VALUE_BYTES = 100
NOW_MS = 1_700_000_000_000
RATE = "M records/s"
CRC, PLACE, BOTH = "CRC check, us", "assigning offsets, us", "CRC check + offsets, us"
KEPT, ANEW = "all checks of produce, kept as sent, us", "compressing again, us"
KEPT_RATIO = "compressing again / all checks"
RATIO = "compressing again / (CRC check + offsets)"
REPETITION_S = 0.01


class Twin(Server):
    """The loops that a process uses, in the place of a server."""

    def __init__(self, name: str) -> None:
        self.name = name


def best_us(function: Callable[[], object], seconds: float) -> float:
    """CPU time of a call: the least of the means over repetitions of about 10 ms."""
    means: list[float] = []
    calls, end = 1, time.perf_counter() + seconds
    while not means or time.perf_counter() < end:
        start = time.process_time()
        for _ in range(calls):
            function()
        taken_s = time.process_time() - start
        if taken_s < REPETITION_S:
            calls *= 2
        else:
            means.append(taken_s / calls)
    return min(means) * 1e6


def rows(key_bytes: int) -> list[tuple[int, bytes | None, bytes, tuple[()]]]:
    """Records as a log of web requests has them: gzip makes a third of them, or a little less."""
    rng = random.Random(1)
    words = b"GET POST /index.html /account /search 200 404 Mozilla Firefox Safari".split()
    found = []
    for index in range(COUNT):
        line = b" ".join(rng.choice(words) for _ in range(20))
        value = b"%s %d %s" % (rng.randbytes(12).hex().encode(), NOW_MS + index, line)
        key = b"%0*d" % (key_bytes, index) if key_bytes else None
        found.append((NOW_MS + index, key, value[:VALUE_BYTES], ()))
    return found


class InAProcess(Case):
    """Runs `measure` in a fresh interpreter."""

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        command = [sys.executable, "-m", "bench.convert", server.name, self.name, str(scale.raw_s)]
        with machine.on_broker_core():
            ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise RuntimeError(f"{self.name}, {server.name}: {ran.stderr.strip()}")
        found: dict[str, float] = json.loads(ran.stdout)
        return found

    def measure(self, seconds: float) -> dict[str, float]:
        raise NotImplementedError


class Conversion(InAProcess):
    """An uncompressed batch or run to another format; every CRC of a message is in it."""

    group = f"Conversion, {COUNT:,} records of {VALUE_BYTES} B, not compressed, CRCs included"

    def __init__(self, source: int, target: int, *, key_bytes: int = 0, estimate: float) -> None:
        keys = f", keys of {key_bytes} B" if key_bytes else ""
        self.name = f"format {source} to {target}{keys}"
        self.figures = (Figure(RATE, 2, estimate),)
        self._source, self._target, self._key_bytes = source, target, key_bytes

    def measure(self, seconds: float) -> dict[str, float]:
        from protocol.records import transcode
        from protocol.records.builder import build_batch
        from protocol.records.layout import HEADER_SIZE
        from protocol.records.legacy import build_messages

        records = rows(self._key_bytes)
        kept: dict[str, Any] = {"append_time_ms": None, "min_offset": 0}
        checks = {"max_entry_bytes": 1 << 20, "oldest_ms": 0, "newest_ms": 1 << 62}
        source, target = self._source, self._target
        batch = build_batch(records)[HEADER_SIZE:]
        run = build_messages(records, magic=min(source, 1))

        def downwards() -> object:
            return transcode.messages_from_records(
                *(batch, COUNT), base_offset=0, base_timestamp=NOW_MS, magic=target, **kept
            )

        def between() -> object:
            transcode.scan_messages(run, source, **checks)
            return transcode.messages_from_messages(
                run, source_magic=source, magic=target, offset=0, renumber=False, **kept
            )

        def upwards() -> object:
            transcode.scan_messages(run, source, **checks)
            return transcode.records_from_messages(run, 0, magic=source, max_bytes=1 << 30)

        function = downwards if source == 2 else upwards if target == 2 else between
        return {RATE: COUNT / best_us(function, seconds)}


class InPlace(InAProcess):
    """A gzip set that a producer sent right: what storing it costs, and what making it anew would.

    The first is promised to be the CRC check and 5 us at most, the ratio to be 10 at least.
    """

    group = f"A gzip set of {COUNT:,} records of {VALUE_BYTES} B, stored as it was sent"

    def __init__(self, magic: int) -> None:
        self.name = f"format {magic}"
        self.figures = (
            *(Figure(CRC, 1), Figure(PLACE, 2), Figure(BOTH, 1)),
            *(Figure(KEPT, 0), Figure(ANEW, 0), Figure(RATIO, 0, 10), Figure(KEPT_RATIO, 1)),
        )
        self._magic = magic

    def measure(self, seconds: float) -> dict[str, float]:
        from protocol.records.batch import Batch
        from protocol.records.builder import build_batch
        from protocol.records.compression import GZIP, compress
        from protocol.records.legacy import Message, build_messages
        from protocol.records.prepare import prepare
        from protocol.records.validate import ProduceRules, Validation

        magic, records = self._magic, rows(0)
        rules = ProduceRules(magic=magic, validation=Validation.STRICT)
        if magic == 2:
            view = memoryview(bytearray(build_batch(records, codec=GZIP)))
        else:
            view = memoryview(bytearray(build_messages(records, magic=magic, codec=GZIP)))
        seen: Batch | Message = Batch(view) if magic == 2 else Message(view)
        payload = seen.payload()

        def checked() -> Prepared | None:
            return prepare(view, rules, version=3 if magic == 2 else 2, now_ms=0, next_offset=0)

        prepared = checked()
        if prepared is None or prepared.rebuilt:
            raise RuntimeError("the set was not stored as it was sent")
        if prepared.messages is not None:
            messages = prepared.messages
            place_us = best_us(lambda: messages.place(0), seconds)
        else:
            batch = Batch(view)
            place_us = best_us(lambda: batch.place(0, 0), seconds)
        crc_us = best_us(seen.is_intact, seconds)
        checked_us = best_us(checked, seconds)
        again_us = best_us(lambda: compress(GZIP, payload, magic=magic), seconds)
        return {
            **{CRC: crc_us, PLACE: place_us, BOTH: crc_us + place_us},
            **{KEPT: checked_us, ANEW: again_us},
            **{RATIO: again_us / (crc_us + place_us), KEPT_RATIO: again_us / checked_us},
        }


class Checks(InAProcess):
    """The checks of a batch before it is appended, by level of checks."""

    group = "All checks of a batch of format 2 by level, us"

    def __init__(self, codec: int, count: int, value_bytes: int) -> None:
        from protocol.records.compression import NAMES

        self.name = f"codec {NAMES[codec]}, {count:,} records of {value_bytes:,} B"
        self.figures = tuple(Figure(level, 2) for level in validation.LEVELS)
        self._codec, self._count, self._value_bytes = codec, count, value_bytes

    def measure(self, seconds: float) -> dict[str, float]:
        from protocol.records.builder import build_batch
        from protocol.records.prepare import prepare
        from protocol.records.validate import ProduceRules, Validation, quick_header

        records = validation.lines(self._count, self._value_bytes)
        view = memoryview(bytearray(build_batch(records, codec=self._codec)))

        def checked(rules: ProduceRules) -> object:
            return quick_header(view, rules) or prepare(
                view, rules, version=9, now_ms=0, next_offset=0
            )

        found = {}
        for level in validation.LEVELS:
            rules = ProduceRules(validation=Validation[level.upper()])
            found[level] = best_us(partial(checked, rules), seconds / 3)
        return found


CASES: tuple[InAProcess, ...] = (
    Conversion(2, 1, estimate=5.7),
    Conversion(2, 1, key_bytes=9, estimate=5.7),
    Conversion(2, 0, estimate=5.7),
    Conversion(1, 2, estimate=5.8),
    Conversion(0, 2, estimate=5.8),
    Conversion(1, 0, estimate=5.7),
    InPlace(1),
    InPlace(2),
)
CHECKS: tuple[InAProcess, ...] = (
    *(Checks(0, *size) for size in validation.PLAIN),
    *(Checks(codec, *size) for codec in range(1, 5) for size in validation.PACKED),
)


def main(loops: str, name: str, seconds: str) -> None:
    if loops == "interpreted":
        sys.modules["protocol.records._loops"] = None  # type: ignore[assignment]
    from protocol.records.transcode import IMPLEMENTATION

    if loops != IMPLEMENTATION:
        raise SystemExit(f"the loops are {IMPLEMENTATION}; `make compiled` builds those in C")
    (case,) = (case for case in (*CASES, *CHECKS) if case.name == name)
    print(json.dumps(case.measure(float(seconds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
