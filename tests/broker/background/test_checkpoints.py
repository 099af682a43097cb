"""Recovery points are noted when a start has looked through logs after a crash."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from storage.checkpoints import decode_offsets
from storage.layout import RECOVERY_POINTS
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch

if TYPE_CHECKING:
    from pathlib import Path

TOPIC, PARTITIONS = "t", 12  # more than are synced at once
WITHIN_S = 60.0
NEVER_BY_TIME = {"log.flush.offset.checkpoint.interval.ms": "3600000", "broker.processes": "1"}


def test_a_broker_that_was_killed_notes_what_its_start_has_looked_through(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", settings=NEVER_BY_TIME)
    points = tmp_path / "data" / RECOVERY_POINTS
    broker.start()
    with Caller("127.0.0.1", broker.port) as caller:
        caller.create_topic(TOPIC, PARTITIONS)
    for life in range(1, 3):
        with Caller("127.0.0.1", broker.port) as caller:
            for partition in range(PARTITIONS):
                assert not caller.produce(TOPIC, batch(b"v"), partition=partition).error_code
        broker.kill()

        broker.start()

        wanted = {(TOPIC, partition): life for partition in range(PARTITIONS)}
        end_s = time.monotonic() + WITHIN_S
        while not points.exists() or decode_offsets(points.read_bytes(), "") != wanted:
            assert time.monotonic() < end_s, "it is not noted"
            time.sleep(0.02)
    broker.stop()
