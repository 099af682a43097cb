"""The part that one of several processes has in a data directory.

The directory stays one: the same files, with the same names, for whoever opens it next. A process
opens the logs of the partitions that it leads, and of those alone. Of the checkpoints it writes the
entries of what it leads. Process 0, the controller, does in addition what is to be done once: it
looks at how the last stop was, removes what is left of deleted topics, and says at the end of the
start that the directory is ours. What each closed at a clean stop is noted in a file of its own
(`.pystate-<number>.json`), which `join_clean_states` makes one of when all have gone.

What if such a file is left, because nobody was there to join them: the next start removes it, and
looks at the logs after their recovery points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.checkpoints import Sharing, encode_clean_shutdown
from storage.clean_state import CleanStop
from storage.layout import CHECKPOINTS_TURN, CLEAN_SHUTDOWN, CLEAN_STATE

if TYPE_CHECKING:
    from collections.abc import Container

    from storage.clean_state import CleanState
    from storage.filesystem import Filesystem

    Partition = tuple[str, int]

CONTROLLER = 0


class LockOfAll:
    """The lock of a directory as a process has it: it was taken before, for all of them, and is
    released by the one that took it."""

    def release(self) -> None:
        """Nothing."""


class LastStop:
    """What the controller has found of the last stop, for those who open logs after it.

    `was_clean`: the marker was there. `led_alone`: no other broker has led the directory since our
    last start.
    """

    __slots__ = ("led_alone", "was_clean")

    def __init__(self, *, was_clean: bool, led_alone: bool) -> None:
        self.was_clean = was_clean
        self.led_alone = led_alone


class Share:
    """The share of process `number`."""

    def __init__(self, number: int, last_stop: LastStop | None = None) -> None:
        """`last_stop` is None for the controller at a start of all, which is to look itself."""
        self.number = number
        self.last_stop = last_stop
        self.opened: set[Partition] = set()
        """What this process leads, and what it has led and no other does now."""
        self.topics: Container[str] = ()
        """The names of all topics, once they are known."""

    @property
    def begins(self) -> bool:
        """Whether what is done once at a start of all is to be done here."""
        return self.last_stop is None

    @property
    def clean_state(self) -> str:
        """The name of the file in which this process notes what it closed."""
        return clean_state_of(self.number)

    def own(self, name: str) -> str:
        """The name of a file that each process has for itself: the first under this name."""
        return name if self.number == CONTROLLER else f"{name}.{self.number}"

    def is_mine(self, partition: Partition) -> bool:
        """Whether this process answers for the entry of a checkpoint. Of topics that are no more
        the controller does."""
        return partition in self.opened or (
            self.number == CONTROLLER and partition[0] not in self.topics
        )

    def sharing(self, files: Filesystem, path: str) -> Sharing:
        """How this process writes checkpoints of the directory `path`."""
        return Sharing(files, f"{path}/{CHECKPOINTS_TURN}", self.is_mine)


def clean_state_of(number: int) -> str:
    """The name of the file in which a process notes what it closed."""
    stem, _, suffix = CLEAN_STATE.rpartition(".")
    return f"{stem}-{number}.{suffix}"


def join_clean_states(files: Filesystem, path: str, count: int, *, broker_epoch: int) -> None:
    """Make one of what `count` processes noted at a clean stop, and then leave the marker. Raises
    OSError, ValueError; then there is no marker."""
    states: dict[str, CleanState] = {}
    topic_ids: dict[str, str] = {}
    for number in range(count):
        noted = CleanStop.decode(files.read_bytes(f"{path}/{clean_state_of(number)}"))
        states.update(noted.states)
        topic_ids.update(noted.topic_ids)
    files.write_atomic(f"{path}/{CLEAN_STATE}", CleanStop(states, topic_ids).encode())
    remove_clean_states(files, path)
    files.write_atomic(f"{path}/{CLEAN_SHUTDOWN}", encode_clean_shutdown(broker_epoch))


def remove_clean_states(files: Filesystem, path: str) -> None:
    """Remove what processes noted and nobody joined. Raises OSError."""
    stem, _, suffix = CLEAN_STATE.rpartition(".")
    for name in files.list_dir(path):
        number = name.removeprefix(f"{stem}-").removesuffix(f".{suffix}")
        if number.isdecimal() and name == clean_state_of(int(number)):
            files.remove(f"{path}/{name}")
