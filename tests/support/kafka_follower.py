"""A broker of Apache Kafka that is not its own controller: it follows the metadata log of ours.

It cannot register, as we have no such API, and never becomes ready; but its replica of the metadata
log is the real one: it asks for the log, loads a snapshot, and follows.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from tests.support.kafka_process import META_PROPERTIES, KafkaProcess
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka_release import Release

NODE_ID = 2
METADATA_FOLDER = "__cluster_metadata-0"


class KafkaFollower(KafkaProcess):
    """Node 2. `controller` is where node 1 listens for it (host:port)."""

    READY_LINE = re.compile(r"Registered the listener \S*MetadataLoader")

    def __init__(self, data: Path, *, controller: str, cluster_id: str, release: Release) -> None:
        address = f"PLAINTEXT://{self.host}:{free_port()}"
        super().__init__(
            data,
            settings={
                "process.roles": "broker",
                "controller.quorum.voters": f"1@{controller}",
                "listeners": address,
                "advertised.listeners": address,
            },
            release=release,
        )
        self.logs.mkdir(parents=True)
        properties = f"version=1\ncluster.id={cluster_id}\nnode.id={NODE_ID}\n"
        (self.logs / META_PROPERTIES).write_text(properties)

    def _ready(self, line: re.Match[str]) -> None:
        """It takes no clients."""

    def files(self) -> dict[str, bytes]:
        """Its snapshots and segments of the metadata log, by name."""
        return metadata_files(self.logs)

    def wait_for(self, wanted: dict[str, bytes], *, within_s: float = 30.0) -> None:
        """Until it has these files, and no other snapshot or segment."""
        deadline_s = time.monotonic() + within_s
        while (found := self.files()) != wanted:
            if time.monotonic() > deadline_s:
                sizes = [{name: len(data) for name, data in one.items()} for one in (found, wanted)]
                raise self._running().failure(f"has {sizes[0]}, wanted {sizes[1]}")
            time.sleep(0.1)


def metadata_files(directory: Path) -> dict[str, bytes]:
    """Snapshots and segments of the metadata log of a data directory."""
    folder = directory / METADATA_FOLDER
    return {
        path.name: path.read_bytes()
        for pattern in ("*.log", "*.checkpoint")
        for path in folder.glob(pattern)
        if path.name[0].isdigit()
    }
