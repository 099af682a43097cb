"""The transactions that a cleaning meets while it goes through a log.

Which ones were aborted is in the `.txnindex` files: a batch is aborted if its producer is between
the first offset of such a transaction and the marker. The data of aborted transactions goes at
once. A marker has to stay as long as there is a batch of its transaction before it, and with an
abort marker its entry in the index.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from protocol.records.compact import ABORT, COMMIT
from protocol.records.errors import CorruptBatch
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from storage.layout import TRANSACTION_INDEX, file_name
from storage.transaction_index import AbortedTransaction, collect, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.records.layout import Header
    from storage.cleaning.plan import CleaningPlan
    from storage.filesystem import Filesystem


class Transactions:
    """The transactions open at the batch that cleaning has reached. Batches come in order."""

    def __init__(self) -> None:
        self._to_come: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """By producer id, and whether a batch of it was met."""
        self._committed: set[int] = set()
        """Producers of other open transactions of which a batch was met."""

    def expect(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Aborted transactions that may come. One may be announced twice, while it is open."""
        for entry in aborted:
            heappush(self._to_come, (entry.first_offset, entry))

    def _come_to(self, header: Header) -> None:
        to_come, last_offset = self._to_come, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        while to_come and to_come[0][0] <= last_offset:
            _, entry = heappop(to_come)
            if entry.last_offset >= header[BASE_OFFSET]:
                self._aborted.setdefault(entry.producer_id, (entry, False))

    def is_aborted(self, header: Header) -> bool:
        """Whether a data batch, the next one, belongs to an aborted transaction."""
        if self._to_come:
            self._come_to(header)
        if not header[ATTRIBUTES] & TRANSACTIONAL_BIT:
            return False
        producer_id = header[PRODUCER_ID]
        known = self._aborted.get(producer_id)
        if known is None:
            self._committed.add(producer_id)
            return False
        self._aborted[producer_id] = known[0], True
        return True

    def end(self, header: Header, kind: int) -> tuple[bool, AbortedTransaction | None]:
        """Whether a marker, the next control batch, of type `kind` is of no more use because no
        batch of its transaction was met; and the index entry that stays with it."""
        self._come_to(header)
        if kind == ABORT:
            entry, met = self._aborted.pop(header[PRODUCER_ID], (None, False))
            return not met, entry if met else None
        if kind == COMMIT:
            met = header[PRODUCER_ID] in self._committed
            self._committed.discard(header[PRODUCER_ID])
            return not met, None
        return False, None


class AbortedTransactions:
    """The `.txnindex` files of the sources, and what the plan adds for markers beyond them."""

    def __init__(self, files: Filesystem, plan: CleaningPlan) -> None:
        self._files = files
        self._plan = plan
        self._read: dict[int, list[AbortedTransaction]] = {}

    def of_source(self, index: int) -> list[AbortedTransaction]:
        """Aborted transactions with a batch in the source, or their marker.

        Raises OSError, and CorruptBatch for an index that cannot be one: without it aborted records
        would pass for newer ones than what they never replaced.
        """
        sources = self._plan.sources
        offset = sources[index].base_offset
        upper = self._plan.end if index + 1 == len(sources) else sources[index + 1].base_offset
        found: list[AbortedTransaction] = []
        self._read = {number: read for number, read in self._read.items() if number >= index}
        for number in range(index, len(sources)):
            if number not in self._read:
                self._read[number] = self._load(sources[number].base_offset)
            if collect(self._read[number], offset, upper, found):
                return found
        collect(self._plan.aborted, offset, upper, found)
        return found

    def _load(self, base_offset: int) -> list[AbortedTransaction]:
        path = f"{self._plan.folder}/{file_name(base_offset, TRANSACTION_INDEX)}"
        try:
            data = self._files.read_bytes(path)
        except FileNotFoundError:
            return []
        entries = decode(data, base_offset)
        if entries is None:
            raise CorruptBatch(f"{path}: {len(data)} bytes are no index of aborted transactions")
        return entries
