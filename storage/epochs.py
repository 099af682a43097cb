"""The leader epochs of a log with the offsets at which they began, and their checkpoint file.

A client that remembers the epoch of the last record it read can ask where that epoch ended; an
answer below its own position tells it that the log was cut (KIP-101, KIP-320).

File (`leader-epoch-checkpoint`), text: `0`, the number of entries, then `epoch start_offset` per
line, rising in both (docs/formats/leader-epochs.md). Epoch and offset of the last entry have the
CRC-32C of the file between them, as blanks: 32 of them, from the highest bit on, a space for 0 and
a tab for 1. It is that of the file with a single space there. Apache Kafka parts the fields of a
line at any blanks (`\\s+`, in all its releases) and takes nothing else than two numbers, so there
is no other room for a checksum; it writes the file without one.

What if it is lost: it is made again from the epochs in the batches' headers.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

from protocol.records.crc import crc32c
from storage.errors import MalformedFile

VERSION = "0"
UNKNOWN = (-1, -1)

CHECKSUM = re.compile(rb"(?<![ \t])[ \t]{32}(?![ \t])")
CHECKSUM_REST = re.compile(rb"[ \t]{8}")
"""As many blanks together are what is left of a checksum."""
BITS_TO_BLANKS = bytes.maketrans(b"01", b" \t")
BLANKS_TO_BITS = bytes.maketrans(b" \t", b"01")


class LeaderEpochs:
    """Epochs and their start offsets, oldest first."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self._epochs)

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def copy(self) -> LeaderEpochs:
        """For another thread."""
        other = LeaderEpochs()
        other._epochs, other._starts = list(self._epochs), list(self._starts)
        return other

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if none is known."""
        return self._epochs[-1] if self._epochs else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Begin an epoch; returns whether anything changed.

        Entries that contradict it (a higher epoch, or a start at or after this one) are dropped.
        """
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def cut_end(self, offset: int) -> bool:
        """The log now ends at `offset`: drop entries that start there or later."""
        keep = bisect_left(self._starts, offset)
        changed = keep < len(self._starts)
        del self._epochs[keep:], self._starts[keep:]
        return changed

    def cut_start(self, offset: int) -> bool:
        """The log now starts at `offset`: the epoch that holds it starts there."""
        drop = bisect_right(self._starts, offset)
        if not drop or (drop == 1 and self._starts[0] == offset):
            return False
        epoch = self._epochs[drop - 1]
        self._epochs[:drop], self._starts[:drop] = [epoch], [offset]
        return True

    def cut_above(self, epoch: int) -> bool:
        """Drop epochs that have not been yet, as far as the metadata knows."""
        keep = bisect_right(self._epochs, epoch)
        changed = keep < len(self._epochs)
        del self._epochs[keep:], self._starts[keep:]
        return changed

    def end_offset_for(
        self, epoch: int, *, log_end: int, leading: int, log_start: int = 0
    ) -> tuple[int, int]:
        """The largest epoch at or below `epoch`, and the offset at which it ended; of epochs that
        lie wholly below the log start nothing is known.

        `leading` is the present epoch; it may not have an entry yet, and then begins at the log's
        end. (-1, -1) if `epoch` is above all that are known, or negative. An epoch below all of
        them is answered with itself and the start of the oldest, as Apache Kafka does.
        """
        epochs, starts = self._epochs, self._starts
        below = bisect_right(starts, log_start)
        if below:
            epochs, starts = epochs[below - 1 :], [log_start, *starts[below:]]
        if leading > self.latest:
            epochs, starts = [*epochs, leading], [*starts, log_end]
        if epoch < 0 or not epochs or epoch > epochs[-1]:
            return UNKNOWN
        if epoch == epochs[-1]:
            return epoch, log_end
        higher = bisect_right(epochs, epoch)
        return (epochs[higher - 1] if higher else epoch), starts[higher]

    def epoch_of(self, offset: int) -> int:
        """The epoch in which an offset was written, -1 if unknown."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else -1

    def begins_at(self, offset: int) -> bool:
        """Whether an epoch began at this very offset."""
        index = bisect_left(self._starts, offset)
        return index < len(self._starts) and self._starts[index] == offset

    def has(self, epoch: int) -> bool:
        """Whether anything was written in this epoch, as far as is known."""
        index = bisect_left(self._epochs, epoch)
        return index < len(self._epochs) and self._epochs[index] == epoch

    def encode(self) -> bytes:
        lines = [VERSION, str(len(self._epochs))]
        lines += [f"{epoch} {start}" for epoch, start in self.entries()]
        data = ("\n".join(lines) + "\n").encode()
        if not self._epochs:
            return data
        head, _, start = data.rpartition(b" ")
        return head + f"{crc32c(data):032b}".encode().translate(BITS_TO_BLANKS) + start

    @classmethod
    def decode(cls, data: bytes, path: str) -> LeaderEpochs:
        """Read the file; an empty one has no entries. A single wrong bit is passed over if there
        is a checksum. Raises MalformedFile."""
        from storage.checkpoints import read_entries

        epochs = cls()
        for fields in read_entries(as_written(data, path), path, field_count=2):
            epoch, start = int(fields[0]), int(fields[1])
            if epochs._epochs and (epoch <= epochs._epochs[-1] or start < epochs._starts[-1]):
                raise MalformedFile(path, f"entry {epoch} {start} does not rise")
            epochs._epochs.append(epoch)
            epochs._starts.append(start)
        return epochs


def as_written(data: bytes, path: str) -> bytes:
    """The file with the one bit changed back that its checksum shows to be wrong; mostly there is
    none. Without a checksum it is taken as it is. Raises MalformedFile if more is wrong."""
    found = CHECKSUM.search(data)
    if found is None:
        if CHECKSUM_REST.search(data):
            raise MalformedFile(path, "the checksum is spoilt")
        return data
    content = data[: found.start()] + b" " + data[found.end() :]
    stated = int(found[0].translate(BLANKS_TO_BITS), 2)
    if crc32c(content) == stated:
        return data
    from storage.wrong_bit import with_bit_right

    whole = with_bit_right(content, stated)
    if whole is None:
        raise MalformedFile(path, f"the checksum is {stated}, the content has {crc32c(content)}")
    at = found.start()
    return whole[:at] + found[0] + whole[at + 1 :]
