"""Makes the archives beside this file again: log directories that Apache Kafka was killed in.

    python -m tests.storage.kafka_killed.make [NAME...]

Needs Java 17 and Maven. A Kafka compacts and writes, and gets SIGKILL; then a copy of what it left
is started once more, and all that this Kafka serves is noted beside the archive.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from base64 import b64encode
from contextlib import suppress
from multiprocessing import Process
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Producer

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.layout import CONTROL_BIT
from protocol.records.walk import walk
from storage.layout import DELETED, INDEX, METADATA_LOG, TIME_INDEX
from tests.support.administrator import Administrator
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4, Release
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
NOW_MS = 1_700_000_000_000
TABLE, PLAIN, DEALS, TRIMMED, GONE, WIDE = "table", "plain", "deals", "trimmed", "gone", "wide"
GROUPS = ("readers", "others")
OFFSETS = "__consumer_offsets"

#: Segments end after some batches a millisecond apart: Kafka 4 wants 1 MiB at least for the size of
#: one. Their indexes make compaction write a new one of some of them each. It begins at once.
SETTINGS = {
    "log.roll.ms": "10",
    "log.index.size.max.bytes": "240",
    "log.index.interval.bytes": "400",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "0",
    "log.roll.jitter.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.retention.check.interval.ms": "600000",
}
COMPACTED = {"cleanup.policy": "compact"}

Json = dict[str, Any]


class Killed(NamedTuple):
    """One archive. `when` waits for the moment, and kills the process."""

    name: str
    release: Release
    when: Callable[[KafkaProcess], None]
    then: Callable[[KafkaProcess], None] | None = None
    """What happens in a second life before that."""


def main() -> None:
    wanted = sys.argv[1:]
    for killed in KILLED:
        if not wanted or killed.name in wanted:
            with tempfile.TemporaryDirectory() as folder:
                make(killed, Path(folder))


def make(killed: Killed, folder: Path) -> None:
    logs = folder / "kafka" / "logs"
    kafka = KafkaProcess(folder / "kafka", settings=SETTINGS, release=killed.release)
    kafka.start()
    try:
        write_everything(kafka)
        if killed.then is not None:
            kafka.stop()
            kafka.start()
            killed.then(kafka)
        before = served(kafka) if killed.when is at_rest else None
        killed.when(kafka)
    finally:
        if kafka.run is not None:
            kafka.kill()
    shutil.copytree(logs, folder / "copy")
    idle = {**SETTINGS, "log.cleaner.enable": "false"}
    again = KafkaProcess(
        folder / "again", settings=idle, logs=folder / "copy", release=killed.release
    )
    again.start()
    try:
        after = served(again)
    finally:
        again.kill()
    if before is not None:
        assert after == before, "Kafka served something else before it was killed"
    pack(logs, HERE / f"{killed.name}.tar.xz")
    (HERE / f"{killed.name}.json").write_text(json.dumps(after, indent=None) + "\n")
    names = sorted(path.name for path in (logs / f"{TABLE}-0").iterdir())
    del names[8:]
    print(killed.name, (HERE / f"{killed.name}.tar.xz").stat().st_size, names)


def pack(logs: Path, archive: Path) -> None:
    """All files but the indexes of the metadata log, of which Kafka makes 10 MiB of zeros."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() else 0o644
        return info

    with tarfile.open(archive, "w:xz") as tar:
        for path in sorted(logs.rglob("*")):
            if path.parent.name == METADATA_LOG and path.suffix in (INDEX, TIME_INDEX):
                continue
            tar.add(path, str(path.relative_to(logs)), recursive=False, filter=plain)


# What is written


def write_everything(kafka: KafkaProcess) -> None:
    with Administrator(kafka.host, kafka.port, timeout_s=30) as admin:
        admin.create(TABLE, 2, configs=COMPACTED)
        admin.create(WIDE, configs={**COMPACTED, "segment.index.bytes": "65536"})
        for name in (PLAIN, DEALS, TRIMMED, GONE):
            admin.create(name)
        for number in range(400):
            update(admin, TABLE, number)
            if number % 10 == 0:
                update(admin, TABLE, number, partition=1)
        for number in range(30):
            update(admin, WIDE, number)
            rows = [(NOW_MS + number, b"%d" % number, bytes(50), ())]
            for name in (PLAIN, TRIMMED, GONE):
                admin.produce(
                    name, build_batch(rows * 3, codec=(0, 1, 2, 3, 4)[number % 5]), version=9
                )
        for number in range(60):
            for group in GROUPS:
                commit(admin, group, number)
        admin.delete_records(TRIMMED, 40)
        trade(kafka)
        admin.delete_topic(GONE)


def commit(admin: Administrator, group: str, number: int) -> None:
    offsets = {(PLAIN, 0): number, (TABLE, 1): 2 * number}
    admin.call(FindCoordinatorRequest(key=group, key_type=0), 3)  # it makes the topic
    for _ in range(100):
        codes = set(admin.commit(group, offsets, version=9).values())
        if codes == {0}:
            return
        time.sleep(0.1)
    raise AssertionError(codes)


def update(admin: Administrator, topic: str, number: int, *, partition: int = 0) -> None:
    """The newest of few keys; one in nine is removed."""
    key = b"key %d" % (number * number % 23)
    value = None if number % 9 == 0 else b"value %d" % number
    rows = [(NOW_MS + number, key, value, ())]
    if number % 4 == 0:
        rows.append((NOW_MS + number, b"other %d" % (number % 7), bytes(20), ()))
    for _ in range(100):
        code = admin.produce(topic, build_batch(rows), partition=partition, version=9).error_code
        if code == 0:
            return
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER, code
        time.sleep(0.1)  # Kafka 4 elects a leader when it has started
    raise AssertionError("no leader")


def trade(kafka: KafkaProcess) -> None:
    """Transactions that were committed, aborted and left open."""
    base = {
        "bootstrap.servers": kafka.bootstrap,
        "linger.ms": 0,
        "log_level": 0,
        "transactional.id": "trader",
    }
    producer = Producer(base)
    producer.init_transactions(30)
    for number in range(24):
        producer.begin_transaction()
        for topic in (DEALS, TABLE):
            producer.produce(topic, b"deal %d" % number, b"deal", partition=0)
        producer.flush(30)
        if number % 3:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    opened = Producer({**base, "transactional.id": "undecided", "transaction.timeout.ms": 900_000})
    opened.init_transactions(30)
    opened.begin_transaction()
    opened.produce(DEALS, b"perhaps", partition=0)
    opened.flush(30)
    with Administrator(kafka.host, kafka.port, timeout_s=30) as admin:
        for number in range(5):
            admin.produce(DEALS, build_batch([(NOW_MS, None, b"after %d" % number, ())]), version=9)
    LEFT_OPEN.append(opened)


LEFT_OPEN: list[Producer] = []
"""An open transaction is aborted when its producer goes."""


# When it is killed


def at_rest(kafka: KafkaProcess) -> None:
    """When compaction has nothing more to do."""
    kafka.kill()


def settle(kafka: KafkaProcess) -> None:
    """Wait until compaction has nothing more to do."""
    last: list[str] = []
    for _ in range(60):
        now = [str(p) for p in sorted(kafka.logs.rglob("*.log"))]
        if now == last:
            return
        last = now
        time.sleep(1.5)
    raise AssertionError("compaction goes on and on")


def amid(suffix: str) -> Callable[[KafkaProcess], None]:
    """As soon as compaction has made a file with this suffix."""

    def wait(kafka: KafkaProcess) -> None:
        watcher = Process(target=watch, args=(kafka.logs / f"{TABLE}-0", suffix, kafka.pid))
        for old in (kafka.logs / f"{TABLE}-0").glob(f"*{DELETED}"):
            old.unlink(missing_ok=True)
        watcher.start()
        with (
            suppress(OSError, ConnectionClosed),
            Administrator(kafka.host, kafka.port, timeout_s=30) as admin,
        ):
            for number in range(400, 5000):
                update(admin, TABLE, number)
                time.sleep(0.005)
        watcher.join(60)
        assert watcher.exitcode == 0, f"no {suffix} was seen"

    return wait


def watch(folder: Path, suffix: str, pid: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if any(name.endswith(suffix) for name in os.listdir(folder)):  # noqa: PTH208 quick
            os.kill(pid, signal.SIGKILL)
            return
    sys.exit(1)


def lead_again(kafka: KafkaProcess) -> None:
    """More in the second life, and in epochs that follow."""
    with Administrator(kafka.host, kafka.port, timeout_s=30) as admin:
        for number in range(400, 460):
            update(admin, TABLE, number)
            update(admin, PLAIN, number)
    settle(kafka)


# What is served


def served(kafka: KafkaProcess) -> Json:
    """Everything that a client can read."""
    settle(kafka)
    found: Json = {"kafka": kafka.release.name, "topics": {}, "committed": {}}
    with Administrator(kafka.host, kafka.port, timeout_s=30) as admin:
        for topic, partitions in ((TABLE, 2), (WIDE, 1), (PLAIN, 1), (DEALS, 1), (TRIMMED, 1)):
            for partition in range(partitions):
                found["topics"][f"{topic}-{partition}"] = read(admin, topic, partition)
        for group in GROUPS:
            for (topic, partition), offset in admin.committed(group, None).items():
                found["committed"][f"{group} {topic}-{partition}"] = offset.offset
    return found


def read(admin: Administrator, topic: str, partition: int) -> Json:
    start = admin.offset(topic, -2, partition=partition, version=7).offset
    end = admin.offset(topic, -1, partition=partition, version=7).offset
    offset, records, stable = start, [], -1
    while offset < end:
        fetched = admin.fetch(topic, offset, partition=partition, version=12)
        assert fetched.error_code == 0, fetched.error_code
        stable = fetched.last_stable_offset
        whole = memoryview(bytes(fetched.records or b""))
        if not whole:
            break
        for position, size, _ in walk(whole):
            batch = Batch(whole[position : position + size])
            offset = batch.last_offset + 1
            if batch.attributes & CONTROL_BIT:
                continue
            records += [
                [record.offset, text(record.key), text(record.value)]
                for record in batch.records()
                if record.offset >= start
            ]
    return {"start": start, "end": end, "stable": stable, "records": records}


def text(data: Any) -> str | None:
    return None if data is None else b64encode(bytes(data)).decode()


KILLED = (
    Killed("3.9-at-rest", KAFKA_3_9, at_rest),
    Killed("3.9-second-life", KAFKA_3_9, at_rest, then=lead_again),
    Killed("3.9-amid-cleaned", KAFKA_3_9, amid(".log.cleaned")),
    Killed("3.9-amid-swap", KAFKA_3_9, amid(".swap")),
    Killed("3.9-amid-deleted", KAFKA_3_9, amid(".log.deleted")),
    Killed("4-at-rest", KAFKA_4, at_rest),
    Killed("4-second-life", KAFKA_4, at_rest, then=lead_again),
    Killed("4-amid-swap", KAFKA_4, amid(".swap")),
)

if __name__ == "__main__":
    main()
