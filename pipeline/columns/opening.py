"""From the entries of a buffer to payloads: checksums compared, codecs undone, formats told apart.

What lies outside of the wanted offsets is stepped over unseen. Control batches, and batches of
aborted transactions, are checked and not opened.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from pipeline.columns.aborted import aborted_batches
from pipeline.columns.decode_legacy import Set, checksum_fault, open_wrapper, plain_set
from pipeline.columns.entries import BATCH, OFFSET, find_entries, read_at
from pipeline.columns.payloads import expand
from protocol.records.crc import crc32c
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    CHECKED_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    MESSAGE_ATTRIBUTES_POSITION,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pipeline.columns.faults import Faults

    Payload = bytes | memoryview
    Opened = tuple[int, Payload, Set | None]
    """An entry's number, its payload, and what messages that holds; None for a batch's records."""


class PayloadGroup:
    """Payloads that are decoded together, one behind the other."""

    def __init__(self) -> None:
        self.parts: list[Payload] = []
        self.size = 0
        self.batches: list[int] = []
        """The entries, by number, that are batches with records here."""
        self.begins: list[int] = []
        self.ends: list[int] = []
        """For each of them where its records begin and end."""
        self.sets: list[Set] = []


class Chunk:
    """The entries of a buffer and what is known of them unopened; headers of messages are zeros."""

    def __init__(
        self, view: memoryview, faults: Faults, aborted: Sequence[tuple[int, int]]
    ) -> None:
        self.view = view
        self.faults = faults
        self.entries = find_entries(view)
        position, _, magic, _ = self.entries
        self.raw = raw = np.frombuffer(view if view.nbytes else b"\0", dtype=np.uint8)
        batches, messages = np.flatnonzero(magic == 2), np.flatnonzero(magic < 2)
        self.headers = np.zeros(position.size, dtype=BATCH)
        self.headers[batches] = read_at(raw, position[batches], BATCH)
        self.first_offset = read_at(raw, position, OFFSET).astype(np.int64)
        self.last_offset = self.first_offset + self.headers["last_offset_delta"]
        self.attributes = attributes = self.headers["attributes"].astype(np.int64)
        attributes[messages] = raw[position[messages] + MESSAGE_ATTRIBUTES_POSITION]
        self.codec = attributes & CODEC_MASK
        self.plain = (magic < 2) & (self.codec == 0)
        self.wanted = (self.first_offset < faults.end) & (self.last_offset >= faults.start)
        # Where a wrapper's offsets begin, and in part where they end, only its content tells.
        self.wanted[messages] |= ~self.plain[messages]
        self.closed = (magic == 2) & ((attributes & CONTROL_BIT) != 0)
        if aborted:
            self.closed[batches] |= aborted_batches(
                view, position[batches], self.headers[batches], aborted
            )

    def payload_groups(self, group_bytes: int) -> Iterator[PayloadGroup]:
        """The wanted entries, opened, in groups of `group_bytes` or of one larger payload.

        Bad entries are told to the faults. Raises CodecMissing.
        """
        group = PayloadGroup()
        for first, last in self._runs():
            for number, payload, messages in self._open(first, last):
                begin, size = group.size, len(payload)
                if begin and begin + size > group_bytes:
                    yield group
                    group, begin = PayloadGroup(), 0
                group.parts.append(payload)
                group.size = end = begin + size
                if messages is None:
                    group.batches.append(number)
                    group.begins.append(begin)
                    group.ends.append(end)
                else:
                    group.sets.append(messages.moved(begin))
                if end >= group_bytes:
                    # Before the next is opened: both may be large.
                    del payload
                    yield group
                    group = PayloadGroup()
        self.end_fault()
        yield group

    def end_fault(self) -> None:
        """Note what stopped the walk over the entries, if that was not their end."""
        number = self.plain.size
        if self.entries.fault is not None:
            first = self._after(number)
            if first < self.faults.end:
                self.faults.add(number, first, self.faults.end - 1, self.entries.fault)

    def fault(self, number: int, reason: str) -> None:
        """Note that an entry is bad. Its offsets may be too: its neighbours' count as well."""
        first, last = int(self.first_offset[number]), int(self.last_offset[number])
        if self.entries.magic[number] < 2 and not self.plain[number]:
            first = min(self._after(number), last)
        if number + 1 < self.plain.size and self.first_offset[number + 1] > first:
            last = min(last, int(self.first_offset[number + 1]) - 1)
        self.faults.add(number, first, last, reason)

    def _after(self, number: int) -> int:
        """The offset after the entry that is before this one."""
        return int(self.last_offset[number - 1]) + 1 if number else self.faults.start

    def _runs(self) -> Iterator[tuple[int, int]]:
        """First and last of consecutive wanted entries: batches, plain messages of one format, or
        a single wrapper."""
        magic = self.entries.magic
        alike = self.wanted & ((magic == 2) | self.plain)
        joined = np.zeros(magic.size, dtype=np.bool_)
        joined[1:] = alike[1:] & alike[:-1] & (magic[1:] == magic[:-1])
        firsts = np.flatnonzero(~joined)
        lasts = np.append(firsts, magic.size)[1:] - 1
        chosen = self.wanted[firsts]
        return zip(firsts[chosen].tolist(), lasts[chosen].tolist(), strict=True)

    def _open(self, first: int, last: int) -> Iterable[Opened]:
        """The payloads of such a run, without the entries that are bad."""
        if self.entries.magic[first] == 2:
            return self._open_batches(first, last)
        payload = self.view[int(self.entries.position[first]) : int(self.entries.end[last])]
        try:
            if self.plain[first]:
                return [(first, payload, plain_set(payload, int(self.entries.magic[first])))]
            return [(first, *open_wrapper(payload))]
        except (CorruptBatch, InvalidRecord) as error:
            if first == last:
                self.fault(first, str(error))
                return []
        return chain.from_iterable(self._open(one, one) for one in range(first, last + 1))

    def _open_batches(self, first: int, last: int) -> Iterator[Opened]:
        view, run = self.view, slice(first, last + 1)
        columns = (
            self.entries.position[run],
            self.entries.end[run],
            self.headers["crc"][run],
            self.codec[run] * (self.headers["record_count"][run] != 0),
            self.closed[run],
        )
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for number, (position, end, crc, codec, closed) in enumerate(rows, first):
            found = crc32c(view[position + CHECKED_POSITION : end])
            if found != crc:
                self.fault(number, checksum_fault(crc, found))
            elif not closed:
                payload: Payload = view[position + HEADER_SIZE : end]
                if codec:
                    try:
                        payload = expand(codec, payload)
                    except InvalidRecord as error:
                        self.fault(number, str(error))
                        continue
                yield number, payload, None
