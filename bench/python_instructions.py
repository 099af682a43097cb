"""The instructions of Python's machine that one request costs, from its bytes to its answer.

They are counted, not timed: the same number on every machine, however busy. It is the mean of
as many requests as there are from one whose phases are timed to the next. `--testing` counts them
for a broker whose faults are switched on, with none added.

    python -m bench.python_instructions
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.faults.injection import FaultInjection
from broker.request_times import ALL_TIMED, TIMED_EVERY
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.caller import Target, batch, fetch_request, produce_request
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker

if TYPE_CHECKING:
    from types import FrameType

    from protocol.schema import Message

WARM = ALL_TIMED
WRITTEN, READ = "w", "r"
BATCH = batch(b"x" * 100)
REQUESTS: dict[str, tuple[Message, int]] = {
    "produce, one batch, acks=1": (produce_request((WRITTEN, 0, BATCH), acks=1), 9),
    "fetch, one partition": (fetch_request(Target(READ)), 12),
    "fetch, two partitions": (fetch_request(Target(READ), Target(READ, partition=1)), 12),
    "heartbeat": (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
    "metadata, one topic": (MetadataRequest(topics=[MetadataRequest.Topic(name=READ)]), 9),
}


class Count:
    """Counts while it is the interpreter's trace function."""

    def __init__(self) -> None:
        self.instructions = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Count:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.instructions += event == "opcode"
        return self


def counted(asker: Asker, frame: bytes) -> int:
    """The instructions while this frame arrives and is answered."""
    count = Count()
    sys.settrace(count)
    try:
        asker.fake.feed(frame)
    finally:
        sys.settrace(None)
    return count.instructions


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.python_instructions")
    parser.add_argument("--testing", action="store_true", help="with faults switched on")
    testing = FaultInjection() if parser.parse_args().testing else None
    with (
        tempfile.TemporaryDirectory() as folder,
        InProcessBroker(Path(folder) / "data", testing) as broker,
    ):
        asker = Asker(broker)
        topics = [
            CreateTopicsRequest.Topic(
                name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]
            )
            for name in (WRITTEN, READ)
        ]
        asker.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
        asker.call(produce_request((READ, 0, BATCH), acks=1), 9)
        for name, (request, version) in REQUESTS.items():
            frame = asker._frames.frame(request, version, 1)
            for _ in range(WARM):
                asker.fake.feed(frame)
                broker.turn(2)
            total = 0
            for _ in range(TIMED_EVERY):
                total += counted(asker, frame)
                broker.turn(2)
            print(f"{name:<28} {round(total / TIMED_EVERY):>6}", flush=True)


if __name__ == "__main__":
    main()
