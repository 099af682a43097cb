"""An observer that is cut off 100 times at random bytes of the download ends with the snapshot that
the controller has, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.logdata.metadata import ConfigRecord
from storage.disk import DiskFilesystem
from storage.metadata.loading import load
from tests.support.running_controller import RunningController
from tests.tools.observer.following import checkpoints, cut_off
from tests.tools.observer.scripted_controller import ScriptedController, serve, topic

if TYPE_CHECKING:
    from pathlib import Path

    from protocol.logdata.metadata import MetadataRecord

EITHER_WAY = pytest.mark.parametrize(
    "restarts", [False, True], ids=["one observer", "a new one after each cut"]
)


@EITHER_WAY
@pytest.mark.parametrize("seed", range(2))
async def test_a_hundred_cuts_leave_a_snapshot_as_it_is_at_the_leader(
    tmp_path: Path, seed: int, restarts: bool
) -> None:
    controller = ScriptedController()
    controller.lead(1)
    for number in range(25):
        controller.append(*topic(f"topic{number}", 100))
    snapshot = controller.snapshot()
    controller.append(*topic("late"))
    data = controller.snapshots[snapshot]

    async with serve(controller) as port:
        await cut_off(port, len(data), tmp_path, seed=seed, restarts=restarts)
    assert checkpoints(tmp_path) == {snapshot.file_name: data}
    loaded = load(DiskFilesystem(), str(tmp_path))
    assert list(loaded.image.records()) == list(controller.image.records())


def settings_of_another_broker() -> list[list[MetadataRecord]]:
    """Much to say of little, so that no folders have to be made for it."""
    return [
        [
            ConfigRecord(resource_type=4, resource_name="77", name=f"k{batch}.{n}", value="v" * 200)
            for n in range(100)
        ]
        for batch in range(10)
    ]


@EITHER_WAY
async def test_a_hundred_cuts_from_a_running_broker_leave_its_snapshot(
    tmp_path: Path, restarts: bool
) -> None:
    data, folder = tmp_path / "data", tmp_path / "observer"
    with RunningController(data) as controller:
        with controller.connect_as_client() as client:
            client.create_topic("early", partitions=3)
            controller.run(lambda: controller.controller.append(*settings_of_another_broker()))
            snapshot = controller.take_snapshot()
            client.create_topic("late")
        size = len(checkpoints(data)[snapshot.file_name])
        await cut_off(controller.port, size, folder, seed=3, restarts=restarts)
        there = checkpoints(data)[snapshot.file_name]
        state = list(controller.controller.image.records())
    assert checkpoints(folder) == {snapshot.file_name: there}
    assert sorted(map(repr, load(DiskFilesystem(), str(folder)).image.records())) == sorted(
        map(repr, state)
    )
