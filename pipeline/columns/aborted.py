"""The batches of transactions that were aborted, as a consumer of read_committed sees it.

A fetch of committed data answers (producer id, first offset) for each aborted transaction that has
data in what it returns. Batches of that producer from that offset on are dropped, until its abort
marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from protocol.records.layout import CONTROL_BIT, NO_PRODUCER_ID, TRANSACTIONAL_BIT
from protocol.records.markers import decode_marker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pipeline.columns.entries import Structured
    from pipeline.columns.varints import Numbers


def aborted_batches(
    view: memoryview,
    positions: Numbers,
    batches: Structured,
    aborted: Sequence[tuple[int, int]],
) -> NDArray[np.bool_]:
    """True for each of these consecutive batches that is to be dropped."""
    dropped = np.zeros(batches.size, dtype=np.bool_)
    if not aborted:
        return dropped
    to_come = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    producers: set[int] = set()
    last_offsets = batches["base_offset"] + batches["last_offset_delta"]
    for index in np.flatnonzero(batches["producer_id"] > NO_PRODUCER_ID).tolist():
        while to_come and to_come[-1][1] <= last_offsets[index]:
            producers.add(to_come.pop()[0])
        producer = int(batches["producer_id"][index])
        attributes = int(batches["attributes"][index])
        if attributes & CONTROL_BIT:
            marker = decode_marker(view[positions[index] :])
            if marker is not None and not marker.commit:
                producers.discard(producer)
        elif attributes & TRANSACTIONAL_BIT:
            dropped[index] = producer in producers
    return dropped
