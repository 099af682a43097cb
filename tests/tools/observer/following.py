"""An observer on a line that is cut, and what it has in its folder afterwards."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from storage.disk import DiskFilesystem
from storage.metadata.snapshots import snapshot_id_of
from tests.tools.observer.cutting_proxy import CuttingProxy
from tools.observer.directory import ObserverDirectory
from tools.observer.follower import Follower, Watcher

if TYPE_CHECKING:
    from pathlib import Path

    from protocol.logdata.metadata_names import SnapshotId
    from storage.metadata.image import MetadataImage

CUTS = 100
PIECE_BYTES = 1000
IN_TIME_S = 90.0


class Ended(Exception):
    """The observer has done what a test wants of it."""


class UntilThere(Watcher):
    """Ends the observer when it has caught up, with `restarts` at every cut; and how the download
    went."""

    def __init__(self, *, restarts: bool) -> None:
        self.there = False
        self._restarts = restarts
        self._deadline = time.monotonic() + IN_TIME_S
        self.positions: list[int] = []
        self.troubles: list[str] = []

    def downloading(self, snapshot_id: SnapshotId, position: int, size: int) -> None:
        self.positions.append(position)

    def state(self, image: MetadataImage, end_offset: int) -> None:
        self.there = True
        raise Ended

    def troubled(self, reason: str, wait_s: float) -> None:
        self.troubles.append(reason)
        assert time.monotonic() < self._deadline, f"{len(self.troubles)} cuts"
        if self._restarts:
            raise Ended


def follow_to_the_end(port: int, folder: Path, *, restarts: bool = False) -> UntilThere:
    """Follow what listens there until all is there; with `restarts`, each cut ends the observer and
    another one takes its folder."""
    told = UntilThere(restarts=restarts)
    while not told.there:
        kept = ObserverDirectory.open(DiskFilesystem(), str(folder))
        made = Follower(
            [("127.0.0.1", port)], kept, watcher=told, backoff_s=0.001, piece_bytes=PIECE_BYTES
        )
        with suppress(Ended):
            made.run()
        kept.close()
    return told


async def cut_off(port: int, size: int, folder: Path, *, seed: int, restarts: bool = False) -> None:
    """Follow the controller over a line that is cut 100 times while `size` bytes are loaded."""
    # So that all cuts have come before the end: a connection carries size / 110 on average. That
    # must be more than what both sides say first, or most cuts are not of the download.
    most = size // 55
    assert most > 3000, f"{size} bytes are too few for so many cuts"
    proxy = CuttingProxy(port, cuts=CUTS, most=most, rng=random.Random(seed))
    async with proxy.running():
        told = await asyncio.to_thread(follow_to_the_end, proxy.port, folder, restarts=restarts)
    assert proxy.cuts == CUTS, f"seed {seed}"
    assert len(told.troubles) >= CUTS, f"seed {seed}"
    if not restarts:
        assert told.positions == sorted(told.positions), f"seed {seed}: it began again"


def checkpoints(folder: Path) -> dict[str, bytes]:
    """Name and content of the snapshots in a data directory."""
    return {
        path.name: path.read_bytes()
        for path in (folder / "__cluster_metadata-0").iterdir()
        if snapshot_id_of(path.name)
    }
