"""What a task takes in memory where each record is far larger than it asks a broker for at once.

python -m tests.pipeline.test_task_memory KIND SERVERS FOLDER      # the MB it added, at its peak
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from client.cluster import LATEST, Cluster, TopicPartition
from pipeline.archiving.parquet_writer import ROW_GROUP_BYTES
from pipeline.jobs.archive import Archive
from pipeline.jobs.mirror import Mirror
from pipeline.reading.options import SourceOptions
from pipeline.reading.plan import Range
from pipeline.reading.ranges import records_of
from protocol.records.builder import build_batch
from tests.pipeline.archive_runs import Runs
from tests.pipeline.mirroring import micro_batch
from tests.pipeline.test_decode_memory import peak_mb
from tests.support.broker_process import CHECKOUT
from tests.support.caller import NOW_MS

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

TOPIC = TopicPartition("large-records", 0)
RECORDS = int(os.environ.get("TEST_LARGE_RECORDS", "30"))
RECORD_MB = int(os.environ.get("TEST_LARGE_RECORD_MB", "12"))
COPIES = 12
"""So many records at most are in memory at once: one that comes, those that were fetched ahead, and
one that is worked on, a few times over. That of a task's modules is in it, too."""
MORE_MB = {"read": 0, "mirror": 0, "archive": 3 * (ROW_GROUP_BYTES >> 20)}
"""The row group that waits to be written, and what is made of it."""


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells the peak")
def test_what_a_task_takes_is_bounded_by_its_largest_record_and_not_by_their_number(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic(TOPIC.topic, 1, {"max.message.bytes": str((RECORD_MB + 1) << 20)})
        for _ in range(RECORDS):
            rows = [(NOW_MS, b"k", os.urandom(RECORD_MB << 20), ())]
            cluster.produce(TOPIC, [build_batch(rows)])
    for kind, more_mb in MORE_MB.items():
        ran = subprocess.run(
            [sys.executable, "-m", __name__, kind, broker.bootstrap, str(tmp_path / kind)],
            cwd=CHECKOUT, capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        print(f"{kind}: {ran.stdout.strip()} MB of {RECORDS} records of {RECORD_MB} MB")
        assert int(ran.stdout) < COPIES * RECORD_MB + more_mb


def work(kind: str, servers: str, folder: str) -> None:
    if kind == "mirror":
        rename = "{topic}-copy"
        micro_batch(Mirror(servers, servers, folder, (TOPIC.topic,), rename=rename))
        return
    told = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC.topic, "shape": "ranges"}
    with contextlib.closing(SourceOptions.parse(told, streaming=True).source()) as source:
        range_ = Range(*TOPIC, 0, source.offsets([TOPIC], LATEST)[TOPIC])
        if kind == "read":
            for rows in records_of(source, range_):
                assert rows.num_rows
            return
    Runs(Archive(folder, servers=servers, topics=(TOPIC.topic,))).micro_batch(0, range_)


if __name__ == "__main__":
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    at_first = peak_mb()
    work(*sys.argv[1:])
    print(peak_mb() - at_first)
