"""The instructions of Python's machine that one request costs, from its bytes to its answer.

They are counted, not timed: the same number on every machine, however busy. `--testing` counts them
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
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.caller import Target, batch, fetch_request, produce_request
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker

if TYPE_CHECKING:
    from types import FrameType

    from protocol.schema import Message

ROUNDS = 12
TOPIC = "t"
REQUESTS: dict[str, tuple[Message, int]] = {
    "produce, one batch, acks=1": (produce_request((TOPIC, 0, batch(b"x" * 100)), acks=1), 9),
    "fetch, one partition": (fetch_request(Target(TOPIC)), 12),
    "fetch, two partitions": (fetch_request(Target(TOPIC), Target(TOPIC, partition=1)), 12),
    "heartbeat": (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
    "metadata, one topic": (MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)]), 9),
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
        topic = CreateTopicsRequest.Topic(
            name=TOPIC, num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        asker.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        for name, (request, version) in REQUESTS.items():
            frame = asker._frames.frame(request, version, 1)
            seen = []
            for _ in range(ROUNDS):
                seen.append(counted(asker, frame))
                broker.turn(2)
            print(f"{name:<28} {min(seen):>6}", flush=True)


if __name__ == "__main__":
    main()
