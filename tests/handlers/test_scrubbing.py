"""A broker finds damage in old data by itself, says so, and does not send it to anybody."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch
from tests.support.scraped import counters
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from pathlib import Path

WITHIN_S = 30.0


def spoil(path: Path, position: int) -> None:
    """Flip a bit of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def test_damage_in_a_sealed_segment_is_reported_and_not_served(tmp_path: Path) -> None:
    port = free_port()
    settings = {"log.scrub.interval.ms": "100", "metrics.port": str(port)}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with Caller(broker.host, broker.port) as caller:
            caller.create_topic("old", 1, **{"segment.bytes": "14000"})
            for number in range(40):
                caller.produce("old", batch(b"%02d" % number * 250))
            spoil(tmp_path / "data" / "old-0" / f"{0:020d}.log", 300)

            deadline = time.monotonic() + WITHIN_S
            while not counters(port)["damaged_segments"]:
                assert time.monotonic() < deadline, "the damage was not found"
                time.sleep(0.1)

            assert caller.fetch("old", 0).error_code == ErrorCode.CORRUPT_MESSAGE
            assert caller.values("old", 1) == [b"%02d" % number * 250 for number in range(1, 40)]
        assert broker.run is not None
        said = broker.run.output()
        assert said.count("damaged records") == 1
        assert "old-0" in said
