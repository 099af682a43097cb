"""An observer of a scripted controller, and the events that it reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.tools.observer.scripted_controller import Finished, Line, ScriptedController
from tools.observer.follower import Follower, Watcher
from tools.observer.memory import InMemory

if TYPE_CHECKING:
    from protocol.logdata.metadata import MetadataRecord
    from protocol.logdata.metadata_names import SnapshotId
    from storage.metadata.image import MetadataImage
    from tools.observer.files import Keeping

DATA = "/data/observer"


class Events(Watcher):
    """The events of an observer, as lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.troubles: list[str] = []

    def downloading(self, snapshot_id: SnapshotId, position: int, size: int) -> None:
        if position == size:
            self.lines.append(f"downloaded {snapshot_id.end_offset}-{snapshot_id.epoch}")

    def state(self, image: MetadataImage, end_offset: int) -> None:
        topics = " ".join(sorted(image.topics)) or "no topics"
        self.lines.append(f"state below {end_offset}: {topics}")

    def changed(self, offset: int, record: MetadataRecord, image: MetadataImage) -> None:
        name = getattr(record, "name", "")
        self.lines.append(f"{offset} {type(record).__name__} {name}".rstrip())

    def troubled(self, reason: str, wait_s: float) -> None:
        self.troubles.append(reason)


def follower(
    controller: ScriptedController | Line, kept: Keeping | None = None, **options: Any
) -> tuple[Follower, Events]:
    line = Line(controller=controller) if isinstance(controller, ScriptedController) else controller
    events = Events()
    made = Follower(
        [("controller", 9093)],
        kept or InMemory(),
        watcher=events,
        backoff_s=0,
        connect=line.connect,
        **options,
    )
    return made, events


def follow(made: Follower) -> None:
    """Until nothing more happens."""
    with pytest.raises(Finished):
        made.run()


def same(image: MetadataImage, other: MetadataImage) -> bool:
    return list(image.records()) == list(other.records())
