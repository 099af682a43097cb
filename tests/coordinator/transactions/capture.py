"""Writes `vectors`: `python -m tests.coordinator.transactions.capture`, some minutes.

Each script runs against Apache Kafka of its own. What is kept are the answers, line by line, and
the bytes of `__transaction_state-0`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from base64 import b64encode
from pathlib import Path

from tests.coordinator.transactions import scripts
from tests.support.caller import Caller
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4, Release

VECTORS = Path(__file__).parent / "vectors"
RUNS = {
    "tv1-3.9": (KAFKA_3_9, scripts.tv1),
    "tv1-4": (KAFKA_4, scripts.tv1),
    "tv2-4": (KAFKA_4, scripts.tv2),
    "exhausted-4": (KAFKA_4, scripts.exhausted),
}
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "auto.create.topics.enable": "false",
}
KEPT_BYTES = 20_000


def capture(name: str, release: Release) -> None:
    _, script = RUNS[name]
    with tempfile.TemporaryDirectory() as folder:
        kafka = KafkaProcess(Path(folder) / "kafka", settings=SETTINGS, release=release)
        kafka.start()
        try:
            with Caller(kafka.host, kafka.port) as caller:
                caller.create_topic(scripts.TOPIC, partitions=3)
                lines = script(caller.call)
        finally:
            kafka.stop()
        log = kafka.logs / "__transaction_state-0" / "00000000000000000000.log"
        data = log.read_bytes()
    kept = {"release": release.version, "answers": lines}
    if len(data) <= KEPT_BYTES:
        kept["log"] = b64encode(data).decode()
    (VECTORS / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or RUNS:
        capture(wanted, RUNS[wanted][0])
        print(wanted, flush=True)
