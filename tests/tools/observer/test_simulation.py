"""Observer and controller know the same in the end, whatever happens to them and to the line.

A controller appends, takes snapshots, leads in new epochs, loses what was not agreed upon, and is
set back to an older copy of itself; lines break, pieces come damaged, requests are refused; the
observer is killed, with and without the machine, and starts again in its folder.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.logdata.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RemoveTopicRecord,
)
from storage.metadata.image import MetadataImage
from storage.metadata.loading import load
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut
from tests.tools.observer.scripted_controller import Finished, Line, ScriptedController, topic
from tools.observer.directory import ObserverDirectory
from tools.observer.follower import Follower

if TYPE_CHECKING:
    from protocol.schema import Message

DATA = "/data/observer"
ROUNDS = 12
PASSING = (
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.SNAPSHOT_NOT_FOUND,
    ErrorCode.POSITION_OUT_OF_RANGE,
)


class ObservedController:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.controller = ScriptedController()
        self.controller.lead(1)
        level = FeatureLevelRecord(name="metadata.version", feature_level=21)
        self.controller.append(level, *topic("first"))
        self.line = Line(controller=self.controller)
        self.line.lose = self.loses
        self.controller.spoil = self.spoils
        self.files = MemoryFilesystem(recording=False)
        self.files.make_dir("/data")
        self.files.sync_all()
        self.made = 0
        self.spoiled = 0
        self.copy = self.copied()

    # The controller

    def change(self) -> None:
        self.rng.choice(
            [
                self.create, self.create, self.configure, self.delete, self.transaction,
                self.snapshot, self.lead, self.lose_what_was_not_agreed_upon, self.set_back,
            ]
        )()  # fmt: skip

    def new_topic(self) -> list[MetadataRecord]:
        self.made += 1
        return topic(f"t{self.made}", self.rng.randrange(1, 40))

    def create(self) -> None:
        self.controller.append(*self.new_topic())

    def configure(self) -> None:
        name = f"k{self.rng.randrange(5)}"
        value = self.rng.choice([None, "v" * self.rng.randrange(300)])
        self.controller.append(
            ConfigRecord(resource_type=4, resource_name="", name=name, value=value)
        )

    def delete(self) -> None:
        topics = list(self.controller.image.topics.values())
        if topics:
            self.controller.append(RemoveTopicRecord(topic_id=self.rng.choice(topics).topic_id))

    def transaction(self) -> None:
        end = self.rng.choice([EndTransactionRecord, AbortTransactionRecord])
        self.controller.append(BeginTransactionRecord(), *self.new_topic())
        self.controller.append(*self.new_topic(), end())

    def snapshot(self) -> None:
        self.controller.snapshot(trim=self.rng.random() < 0.7)
        self.copy = self.copied()

    def lead(self) -> None:
        self.controller.lead(self.controller.epoch + 1)

    def lose_what_was_not_agreed_upon(self) -> None:
        """Append, let the observer have it, and then lead without it."""
        controller = self.controller
        controller.high_watermark = controller.end_offset
        count, state = len(controller.batches), self.copied()["image"]
        self.create()
        self.create()
        self.observe()
        del controller.batches[count:]
        controller.end_offset, controller.high_watermark = controller.high_watermark, None
        controller.image = state()
        self.lead()

    def copied(self) -> dict[str, Any]:
        controller = self.controller
        records = list(controller.image.records())

        def image() -> MetadataImage:
            made = MetadataImage()
            for record in records:
                made.replay(record)
            return made

        return {
            "batches": list(controller.batches),
            "epochs": list(controller.epochs),
            "start_offset": controller.start_offset,
            "end_offset": controller.end_offset,
            "snapshots": dict(controller.snapshots),
            "image": image,
        }

    def set_back(self) -> None:
        controller = self.controller
        for name, value in self.copy.items():
            setattr(controller, name, value() if callable(value) else type(value)(value))
        self.lead()
        self.copy = self.copied()

    # What goes wrong

    def loses(self, request: Message) -> bool:
        return self.rng.random() < 0.05

    def spoils(self, piece: bytes) -> bytes:
        if self.spoiled >= 2 or self.rng.random() > 0.05:
            return piece
        self.spoiled += 1
        at = self.rng.randrange(len(piece))
        return piece[:at] + bytes([piece[at] ^ (1 << self.rng.randrange(8))]) + piece[at + 1 :]

    # The observer

    def observe(self) -> None:
        """Run it to the end of what there is, or to its own."""
        self.spoiled = 0
        if self.rng.random() < 0.3:
            self.controller.refusals.append(self.rng.choice(PASSING))
        try:
            kept = ObserverDirectory.open(self.files, DATA)
            made = Follower(
                [("controller", 9093)],
                kept,
                backoff_s=0,
                piece_bytes=700,
                snapshot_after_bytes=3000,
                connect=self.line.connect,
            )
            with pytest.raises(Finished):
                made.run()
            kept.close()
        except PowerCut:
            if self.rng.random() < 0.5:
                self.files.kill()
            else:
                self.files = self.files.power_cut(self.rng)
                self.files.make_dir("/data")
            return
        if self.controller.high_watermark is None:
            self.check(made)

    def check(self, made: Follower) -> None:
        wanted, what = self.controller.image, f"seed {self.seed}"
        assert same(made.image, wanted), what
        assert made.end_offset == self.controller.end_offset, what
        loaded = load(self.files, DATA)
        assert loaded.end_offset == self.controller.end_offset, what
        assert same(loaded.image, wanted), what


def same(one: MetadataImage, other: MetadataImage) -> bool:
    """Whether both say the same; snapshots may tell it in another order."""
    return sorted(map(repr, one.records())) == sorted(map(repr, other.records()))


@pytest.mark.parametrize("seed", range(40))
def test_observer_and_controller_agree_in_the_end(seed: int) -> None:
    observed = ObservedController(seed)
    for _ in range(ROUNDS):
        for _ in range(observed.rng.randrange(4)):
            observed.change()
        if observed.rng.random() < 0.5:
            observed.files.cut_at = observed.files.count + observed.rng.randrange(40)
        observed.observe()
    observed.files.cut_at = None
    observed.observe()
