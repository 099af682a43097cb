"""Which batches of a fetch belong to transactions that were aborted (KIP-98)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_BIT,
    LAST_OFFSET_DELTA,
    PRODUCER_ID,
)
from protocol.records.markers import decode_marker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.records.layout import Header


class AbortedBatches:
    """The batches of aborted transactions in a fetch: those of a producer from a transaction's
    first offset on, up to the marker that ends it."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        """`aborted` are the producer ids and first offsets that the fetch told."""
        self._to_come = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._open: set[int] = set()

    def covers(self, header: Header, view: memoryview) -> bool:
        """Whether a batch is one of them, by its header and its bytes. To be asked of every
        transactional batch in its turn; False for a marker."""
        last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        while self._to_come and self._to_come[-1][1] <= last:
            self._open.add(self._to_come.pop()[0])
        if header[PRODUCER_ID] not in self._open:
            return False
        if not header[ATTRIBUTES] & CONTROL_BIT:
            return True
        marker = decode_marker(view)
        if marker is not None and not marker.commit:
            self._open.discard(header[PRODUCER_ID])
        return False
