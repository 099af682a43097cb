"""The choice of a bit to flip: the kind of file, then the file, then the field or the byte.

Uniform over all bits nearly every flip would be one of a payload, which every checksum finds. So
kinds of files have weights, and in a log a batch is chosen and then one of its header's fields or
its payload, each as often as the others.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.damage.directories import Directory
    from tests.damage.ledger import Ledger, Place

FIELDS = {
    2: {
        "base offset": (0, 8), "length": (8, 12), "leader epoch": (12, 16), "magic": (16, 17),
        "checksum": (17, 21), "attributes": (21, 23), "last offset delta": (23, 27),
        "base timestamp": (27, 35), "max timestamp": (35, 43), "producer id": (43, 51),
        "producer epoch": (51, 53), "base sequence": (53, 57), "record count": (57, 61),
        "payload": (61, None),
    },
    1: {
        "base offset": (0, 8), "length": (8, 12), "checksum": (12, 16), "magic": (16, 17),
        "attributes": (17, 18), "max timestamp": (18, 26), "payload": (26, None),
    },
    0: {
        "base offset": (0, 8), "length": (8, 12), "checksum": (12, 16), "magic": (16, 17),
        "attributes": (17, 18), "payload": (18, None),
    },
}  # fmt: skip
"""First byte and the byte behind the last, by format."""

KINDS: dict[str, tuple[str, int]] = {
    "closed log": (r"(?!__)[^/]+/\d+\.log", 30),
    "open log": (r"(?!__)[^/]+/\d+\.log", 18),
    "offsets log": (r"__consumer_offsets-\d+/\d+\.log", 6),
    "offset index": (r"[^/]+/\d+\.index", 8),
    "time index": (r"[^/]+/\d+\.timeindex", 7),
    "transaction index": (r"[^/]+/\d+\.txnindex", 3),
    "producer snapshot": (r"[^/]+/\d+\.snapshot", 4),
    "leader epochs": (r"[^/]+/leader-epoch-checkpoint", 4),
    "partition.metadata": (r"(?!__cluster)[^/]+/partition\.metadata", 4),
    "receive times": (r"[^/]+/receive-times-checkpoint", 2),
    "recovery points": (r"recovery-point-offset-checkpoint", 2),
    "log starts": (r"log-start-offset-checkpoint", 2),
    "high watermarks": (r"replication-offset-checkpoint", 2),
    "other checkpoints": (r"(cleaner-offset|taken-over)-checkpoint", 2),
    "clean state": (r"\.pystate\.json|\.kafka_cleanshutdown", 3),
    "meta.properties": (r"meta\.properties", 2),
    "metadata log": (r"__cluster_metadata-0/\d+\.log", 4),
    "metadata snapshot": (r"__cluster_metadata-0/.*\.checkpoint|bootstrap\.checkpoint", 3),
    "beside the metadata log": (r"__cluster_metadata-0/(quorum-state|partition\.metadata)", 2),
    "groups snapshot": (r"__consumer_offsets-\d+/(?!\d|leader|partition|receive).*", 2),
}
"""Pattern of the path below the directory, and weight."""


class Flip(NamedTuple):
    """One bit of one file. `place` is the partition whose folder the file is in, `batch` the index
    of the batch in its ledger that the bit belongs to, None where it is none's."""

    kind: str
    file: str
    position: int
    bit: int
    field: str = ""
    place: Place | None = None
    batch: int | None = None

    def apply(self, data: Path) -> None:
        """Flip it, if there is still such a byte: a start may have made the file anew, and a broker
        that runs may remove it at any moment."""
        with contextlib.suppress(FileNotFoundError), (data / self.file).open("r+b") as file:
            file.seek(self.position)
            byte = file.read(1)
            if byte:
                file.seek(self.position)
                file.write(bytes([byte[0] ^ 1 << self.bit]))

    def __str__(self) -> str:
        field = f" ({self.field})" if self.field else ""
        return f"{self.kind}: {self.file}, byte {self.position}, bit {self.bit}{field}"


def choose(directory: Directory, rng: random.Random) -> Flip:
    """A flip somewhere in this directory."""
    names = sorted(
        path.relative_to(directory.path).as_posix()
        for path in directory.path.rglob("*")
        if path.is_file() and path.stat().st_size
    )
    kinds = {kind: _files(directory, kind, names) for kind in KINDS}
    there = [kind for kind, files in kinds.items() if files]
    (kind,) = rng.choices(there, [KINDS[kind][1] for kind in there])
    file = rng.choice(kinds[kind])
    folder, _, name = file.rpartition("/")
    topic, _, number = folder.rpartition("-")
    place = (topic, int(number)) if number.isdigit() else None
    ledger = directory.ledgers.get(place) if place else None
    bit = rng.randrange(8)
    if ledger is not None and name.endswith(".log"):
        return _in_log(ledger, kind, file, rng)._replace(place=place, bit=bit)
    size = (directory.path / file).stat().st_size
    return Flip(kind, file, rng.randrange(size), bit, place=place if ledger else None)


def _files(directory: Directory, kind: str, names: list[str]) -> list[str]:
    found = [name for name in names if re.fullmatch(KINDS[kind][0], name)]
    if kind in ("closed log", "open log"):
        last = {max(found_in) for found_in in _by_folder(found).values()}
        found = [name for name in found if (name in last) == (kind == "open log")]
    return found


def _by_folder(names: list[str]) -> dict[str, list[str]]:
    folders: dict[str, list[str]] = {}
    for name in names:
        folders.setdefault(name.rpartition("/")[0], []).append(name)
    return folders


def _in_log(ledger: Ledger, kind: str, file: str, rng: random.Random) -> Flip:
    name = file.rpartition("/")[2]
    inside = [index for index, batch in enumerate(ledger.batches) if batch.file == name]
    index = rng.choice(inside)
    batch = ledger.batches[index]
    field, (first, end) = rng.choice(list(FIELDS[batch.raw[16]].items()))
    end = len(batch.raw) if end is None else end
    position = batch.position + rng.randrange(first, max(end, first + 1))
    return Flip(kind, file, position, 0, field, batch=index)
