"""Data directories to be damaged: every format, codec and kind of file that a broker leaves.

`build` has a broker serve a directory and clients fill it, and ends it in one of three ways:

    stopped       by SIGTERM: the clean marker is there, all recovery points are at the ends
    killed        by SIGKILL, before the first checkpoint of recovery points
    checkpointed  by SIGKILL, after such a checkpoint and some more records
"""

from __future__ import annotations

import re
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.records.builder import build_batch
from protocol.records.markers import Marker, encode_marker
from tests.damage.forked_broker import ForkedBroker
from tests.damage.ledger import Ledger
from tests.support.caller import NOW_MS
from tests.support.old_sets import GZIP, LZ4, SNAPPY, messages, wrapper

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.damage.callers import PlainCaller
    from tests.damage.ledger import Place

ENDS = ("stopped", "killed", "checkpointed")

SMALL = {
    "segment.bytes": "2400",
    "index.interval.bytes": "300",
    "max.message.bytes": "2000",
    "retention.ms": "-1",
}
"""Segments of some ten batches, with an index entry for every second one."""

TOPICS: dict[str, dict[str, str]] = {
    "plain": SMALL,
    "idempotent": SMALL,
    "one-segment": {"retention.ms": "-1"},
    "old-0": {**SMALL, "message.format.version": "0.9.0"},
    "old-1": {**SMALL, "message.format.version": "0.10.0"},
    "compacted": {
        **SMALL,
        **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
        "min.compaction.lag.ms": "0",
    },
    "stamped": {**SMALL, "message.timestamp.type": "LogAppendTime"},
    "shortened": SMALL,
    "transactions": SMALL,
}

SERVED = {
    "log.cleaner.enable": "false",
    "offsets.topic.num.partitions": "2",
    "log.retention.ms": "-1",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "disk.reserve.bytes": "0",
}
"""Settings of the brokers that build a directory, and of those that serve it when it is damaged."""

WITHIN_S = 20.0
TIME_STEP_MS = 1000

Row = tuple[bytes | None, bytes | None]


class Group(NamedTuple):
    """A group's last commits, and the ones before them."""

    offsets: dict[Place, int]
    earlier: dict[Place, set[int]]


class Directory(NamedTuple):
    """A directory that is whole, and what it holds. `aborted` are the offsets of records that a
    reader of committed ones does not see; `resent` is the last batch of an idempotent producer."""

    path: Path
    end: str
    ledgers: dict[Place, Ledger]
    groups: dict[str, Group]
    topic_ids: dict[str, bytes]
    aborted: set[int]
    resent: bytes


class _Building:
    def __init__(self, folder: Path, end: str, rng: random.Random) -> None:
        folder.mkdir(parents=True)
        self.path = folder / "data"
        self.end = end
        self._output = folder / "output"
        self._rng = rng
        self._time_ms = NOW_MS
        self._acknowledged: dict[Place, dict[int, Row]] = {}
        self._groups: dict[str, Group] = {}
        self._starts: dict[Place, int] = {}
        self._sequence = 0
        self._producer_id = -1
        self._resent = b""

    def run(self) -> Directory:
        with self._broker() as broker:
            for name, configs in TOPICS.items():
                broker.caller().create_topic(name, 1, **configs)
            broker.stop()
        aborted = self._write_transactions()
        with self._broker({"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "50"}) as broker:
            self._fill_compacted(broker.caller())
            broker.stop()
        interval = "200" if self.end == "checkpointed" else "3600000"
        with self._broker({"log.flush.offset.checkpoint.interval.ms": interval}) as broker:
            caller = broker.caller()
            self._fill(caller)
            if self.end == "checkpointed":
                self._await_checkpoint()
            if self.end != "stopped":
                self._fill_more(caller)
            ids = {name: caller.topic_id(name) for name in TOPICS}
            if self.end == "stopped":
                broker.stop()
            else:
                broker.kill()
        return Directory(
            self.path, self.end, self._ledgers(), self._groups, ids, aborted, self._resent
        )

    def _broker(self, more: dict[str, str] | None = None) -> ForkedBroker:
        return ForkedBroker(self.path, self._output, settings={**SERVED, **(more or {})})

    def _ledgers(self) -> dict[Place, Ledger]:
        """Of every partition that there is, the offsets topic's too."""
        found: dict[Place, Ledger] = {}
        for folder in sorted(self.path.iterdir()):
            topic, _, number = folder.name.rpartition("-")
            if folder.is_dir() and not topic.startswith("__cluster"):
                place = topic, int(number)
                found[place] = Ledger.of(folder, self._starts.get(place, 0))
                found[place].require(self._acknowledged.get(place, {}))
        for place, rows in self._acknowledged.items():
            if place[0] != "compacted":
                stored = {record.offset for record in found[place].records()}
                assert stored == {at for at in rows if at >= found[place].start}, place
        return found

    # Filling

    def _rows(self, count: int, *, keys: int = 0) -> list[tuple[int, bytes | None, bytes]]:
        rng, rows = self._rng, []
        for _ in range(count):
            self._time_ms += rng.randrange(TIME_STEP_MS)
            key = b"k%d" % rng.randrange(keys) if keys else rng.choice((None, rng.randbytes(4)))
            rows.append((self._time_ms, key, rng.randbytes(rng.randrange(20, 90))))
        return rows

    def _append(
        self,
        caller: PlainCaller,
        topic: str,
        rows: list[tuple[int, bytes | None, bytes]],
        records: bytes,
        version: int = 9,
    ) -> int:
        entry = caller.produce(topic, records, version=version)
        assert entry.error_code == 0, f"{topic}: {entry.error_code}"
        known = self._acknowledged.setdefault((topic, 0), {})
        for number, (_, key, value) in enumerate(rows):
            known[entry.base_offset + number] = key, value
        base_offset: int = entry.base_offset
        return base_offset

    def _append_batch(
        self, caller: PlainCaller, topic: str, codec: int, *, keys: int = 0, size: int = 0
    ) -> None:
        rows = self._rows(size or self._rng.randrange(1, 6), keys=keys)
        records = build_batch([(*row, ()) for row in rows], codec=codec)
        self._append(caller, topic, rows, records)

    def _append_messages(self, caller: PlainCaller, topic: str, magic: int, codec: int) -> None:
        rows = self._rows(self._rng.randrange(1, 5))
        sent = messages(
            *(row[2] for row in rows),
            magic=magic,
            times_ms=[row[0] for row in rows],
            keys=[row[1] for row in rows],
        )
        if codec:
            sent = wrapper(
                sent, magic=magic, codec=codec, offset=len(rows) - 1, timestamp_ms=rows[-1][0]
            )
        self._append(caller, topic, rows, sent, version=2 if magic else 1)

    def _append_idempotent(self, caller: PlainCaller) -> None:
        rows = self._rows(self._rng.randrange(1, 6))
        self._resent = build_batch(
            [(*row, ()) for row in rows],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        self._sequence += len(rows)
        self._append(caller, "idempotent", rows, self._resent)

    def _fill(self, caller: PlainCaller) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        self._producer_id = caller.call(request, 4).producer_id
        for number in range(30):
            self._append_batch(caller, "plain", number % 5)
            self._append_idempotent(caller)
            self._append_batch(caller, "stamped", 0)
            self._append_batch(caller, "shortened", number % 2)
            self._append_messages(caller, "old-0", 0, (0, GZIP, SNAPPY)[number % 3])
            self._append_messages(caller, "old-1", 1, (0, GZIP, SNAPPY, LZ4)[number % 4])
            if number < 20:
                self._append_batch(caller, "one-segment", number % 5)
        self._commit(caller, times=6)
        start = self._rng.randrange(10, 40)
        caller.delete_records("shortened", start)
        self._starts["shortened", 0] = start

    def _fill_more(self, caller: PlainCaller) -> None:
        for number in range(3):
            self._append_batch(caller, "plain", number % 5)
            self._append_idempotent(caller)
            self._append_messages(caller, "old-1", 1, GZIP if number % 2 else 0)
            self._append_batch(caller, "one-segment", 0)
        self._commit(caller, times=1)

    def _commit(self, caller: PlainCaller, *, times: int) -> None:
        for _ in range(times):
            for name in ("readers", "writers", "others"):
                group = self._groups.setdefault(name, Group({}, {}))
                for topic in self._rng.sample(sorted(TOPICS), 3):
                    place = topic, 0
                    if place in group.offsets:
                        group.earlier.setdefault(place, set()).add(group.offsets[place])
                    group.offsets[place] = self._rng.randrange(1000)
                codes = caller.commit(name, group.offsets)
                assert not any(codes.values()), codes

    def _fill_compacted(self, caller: PlainCaller) -> None:
        """Until a compaction has left holes between the offsets."""
        deadline_s = time.monotonic() + WITHIN_S
        folder = self.path / "compacted-0"
        for number in range(40):
            self._append_batch(caller, "compacted", number % 3, keys=60, size=5)
        while True:
            try:
                kept = len(Ledger.of(folder).records())
            except (FileNotFoundError, AssertionError):
                kept = 10**6  # segments are being replaced
            left = [path.name for path in folder.iterdir() if path.name.count(".") > 1]
            if kept < 150 and not left:
                return
            assert time.monotonic() < deadline_s, f"{kept} records left, {left}"
            time.sleep(0.05)

    def _await_checkpoint(self) -> None:
        """Until the recovery point is in the last segment: all before was synced when it was
        rolled, and what is in it, before it was acknowledged."""
        deadline_s = time.monotonic() + WITHIN_S
        points = self.path / "recovery-point-offset-checkpoint"
        wanted = int(max((self.path / "plain-0").glob("*.log")).stem)
        while True:
            noted = re.search(r"^plain 0 (\d+)$", points.read_text(), re.MULTILINE)
            if noted and int(noted[1]) >= wanted:
                return
            assert time.monotonic() < deadline_s, points.read_text()
            time.sleep(0.05)

    # Transactions, as a log of Kafka's has them

    def _write_transactions(self) -> set[int]:
        """Three segments with committed and aborted transactions of two producers, as a broker
        left them that was killed; the offsets of what was aborted."""
        folder = self.path / "transactions-0"
        aborted: set[int] = set()
        offset = 0
        known = self._acknowledged.setdefault(("transactions", 0), {})
        sequences = {1000: 0, 1001: 0}
        (folder / f"{0:020d}.log").unlink(missing_ok=True)
        for _ in range(3):
            base, log = offset, b""
            for _ in range(4):
                commits = {producer: self._rng.random() < 0.5 for producer in sequences}
                for producer in (1000, 1001, 1000):
                    rows = self._rows(self._rng.randrange(1, 4))
                    log += build_batch(
                        [(*row, ()) for row in rows],
                        base_offset=offset,
                        leader_epoch=0,
                        producer_id=producer,
                        producer_epoch=0,
                        base_sequence=sequences[producer],
                        transactional=True,
                    )
                    sequences[producer] += len(rows)
                    for number, (_, key, value) in enumerate(rows):
                        known[offset + number] = key, value
                        if not commits[producer]:
                            aborted.add(offset + number)
                    offset += len(rows)
                for producer, commit in commits.items():
                    marker = encode_marker(
                        producer, 0, marker=Marker(commit, 1), timestamp_ms=self._time_ms
                    )
                    struct.pack_into(">q", marker, 0, offset)
                    struct.pack_into(">i", marker, 12, 0)
                    log += marker
                    known[offset] = struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 1)
                    offset += 1
            (folder / f"{base:020d}.log").write_bytes(log)
        for path in (*folder.glob("*index"), self.path / ".kafka_cleanshutdown"):
            path.unlink()
        for name in (".pystate.json", "recovery-point-offset-checkpoint"):
            (self.path / name).unlink(missing_ok=True)
        return aborted


def build(folder: Path, end: str, rng: random.Random) -> Directory:
    """A new directory below `folder`, filled and ended so."""
    return _Building(folder, end, rng).run()
