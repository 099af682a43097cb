"""Apache Kafka as these tests start it: small files, and not long in doubt about a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.clients.available import end_of_test
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka_release import Release

SHARDS = 4
#: Both brokers make the topics of their coordinators with this many partitions.
FEW_SHARDS = {
    "offsets.topic.num.partitions": str(SHARDS),
    "transaction.state.log.num.partitions": str(SHARDS),
}
SETTINGS = {
    **FEW_SHARDS,
    # Else a kill leaves 20 MB of zeros in each folder.
    "log.index.size.max.bytes": "100000",
    # What DeleteRecords did is lost with a kill before the next checkpoint, also by Kafka itself.
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "log.initial.task.delay.ms": "500",
    # A broker that was killed may come again when its session is over.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}


def kafka(folder: Path, logs: Path, release: Release, *, dynamic: bool = False) -> KafkaProcess:
    """Kafka with the log directory `logs`, not started. Skips the test when there is none."""
    try:
        return KafkaProcess(folder, settings=SETTINGS, logs=logs, release=release, dynamic=dynamic)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
