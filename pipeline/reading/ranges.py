"""Reading a range of a partition, fetch by fetch, while the caller works on the fetch before.

What may be missing from a range, and what is made of it, is told in `pipeline.reading.fetch_loop`.
"""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from itertools import chain, islice
from queue import Empty, Full, Queue
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from client.cluster import Cluster
from pipeline.left_out import LeftOut as LeftOut
from pipeline.reading.fetch_loop import Chunk as Chunk
from pipeline.reading.fetch_loop import FetchLoop
from pipeline.reading.fetch_loop import Meter as Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    import pyarrow as pa

    from pipeline.reading.plan import Range
    from pipeline.reading.source import Source as Source

FETCH_BYTES = 8 << 20
ONE_FETCH_OFFSETS = 200
"""Of a range with fewer the first fetch is mostly all, and a thread would cost more than it."""
FETCHES_AHEAD = 2
"""Fetches that wait for the caller, besides the one it works on."""

PATIENCE_S = 30.0
"""How long to wait for offsets that should be there, while none comes."""

STOP_LOOK_S = 0.1
"""How often a thread that has a fetch to hand over looks whether it is still wanted."""


def read_range(
    source: Source,
    range_: Range,
    *,
    on_gap: str = "fail",
    on_corrupt: str = "fail",
    committed_only: bool = False,
    whole_entries: bool = False,
    begin: int = 0,
    left_out: LeftOut | None = None,
    meter: Meter | None = None,
    fetch_bytes: int = FETCH_BYTES,
    patience_s: float = PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Chunk]:
    """The entries of a range, in order, fetched in a thread that is FETCHES_AHEAD of the caller.

    With `whole_entries` an entry belongs to the range that has its last offset, and to no other:
    for those who pass entries on as they are. One that reaches below the start of the log, or below
    `begin`, which is at most the range's start, is made anew without those records. Otherwise an
    entry on the edge of two ranges comes with both, and who decodes it takes the offsets from
    `start` to `end`.

    The thread has the source until the iteration is over; closing it early ends the thread.
    `left_out` and `meter` are complete when the iteration is. Raises OffsetsGone, CorruptData,
    CodecMissing, and what the source raises (Unreachable, NoSuchTopic).
    """
    if range_.topic_id is not None and isinstance(source, Cluster):
        source.expect(range_.topic, bytes.fromhex(range_.topic_id))
    loop = FetchLoop(
        source,
        range_,
        skip_gaps=on_gap == "skip",
        skip_corrupt=on_corrupt == "skip",
        committed_only=committed_only,
        whole_entries=whole_entries,
        fetch_bytes=fetch_bytes,
        patience_s=patience_s,
        clock=clock,
        begin=begin,
        meter=Meter() if meter is None else meter,
    )
    return _chunks(loop, LeftOut() if left_out is None else left_out)


def records_of(
    source: Source,
    range_: Range,
    *,
    headers: bool = False,
    on_gap: str = "fail",
    on_corrupt: str = "fail",
    committed_only: bool = False,
    left_out: LeftOut | None = None,
    meter: Meter | None = None,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The records of a range as `schemas.RECORDS`, or with `headers` RECORDS_AND_HEADERS.

    Raises what `read_range` does, and CodecMissing.
    """
    from pipeline.columns.decode import decode_pieces

    left_out = LeftOut() if left_out is None else left_out
    chunks = read_range(
        source,
        range_,
        on_gap=on_gap,
        on_corrupt=on_corrupt,
        committed_only=committed_only,
        left_out=left_out,
        meter=meter,
        fetch_bytes=fetch_bytes,
    )
    with closing(chunks):
        for chunk in chunks:
            yield from decode_pieces(
                chunk.entries,
                topic=range_.topic,
                partition=range_.partition,
                start=chunk.start,
                end=chunk.end,
                headers=headers,
                aborted=chunk.aborted,
                left_out=partial(left_out.corrupt, range_) if on_corrupt == "skip" else None,
            )


def batches_of(
    source: Source,
    range_: Range,
    *,
    on_gap: str = "fail",
    on_corrupt: str = "fail",
    committed_only: bool = False,
    check_crc: bool = True,
    begin: int = 0,
    left_out: LeftOut | None = None,
    meter: Meter | None = None,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The stored batches whose last offsets are in a range, as `schemas.BATCHES`; without records
    that were deleted or are below `begin`, as `read_range` has it.

    With `committed_only` those beyond the first open transaction are left out, but not those of
    aborted ones: a batch is told as it is stored. Raises what `read_range` does.
    """
    from pipeline.columns.decode import decode_batches

    left_out = LeftOut() if left_out is None else left_out
    chunks = read_range(
        source,
        range_,
        on_gap=on_gap,
        on_corrupt=on_corrupt,
        committed_only=committed_only,
        whole_entries=True,
        begin=begin,
        left_out=left_out,
        meter=meter,
        fetch_bytes=fetch_bytes,
    )
    with closing(chunks):
        for chunk in chunks:
            rows = decode_batches(
                chunk.entries,
                topic=range_.topic,
                partition=range_.partition,
                start=chunk.start,
                end=chunk.end,
                check_crc=check_crc,
                left_out=partial(left_out.corrupt, range_) if on_corrupt == "skip" else None,
            )
            if rows.num_rows:
                yield rows


class _Over(NamedTuple):
    """The last that comes out of the thread."""

    error: BaseException | None


def _chunks(loop: FetchLoop, left_out: LeftOut) -> Generator[Chunk]:
    """The chunks of a loop: fetched ahead, but for the first one of a small range."""
    chunks: Iterable[Chunk] = loop.chunks()
    try:
        if loop.range.size < ONE_FETCH_OFFSETS:
            first = list(islice(chunks, 1))
            if loop.position >= loop.end:
                yield from first
                return
            chunks = chain(first, chunks)
        yield from _ahead(loop, chunks)
    finally:
        # Not before: the caller may count in it what it finds in the chunks.
        left_out.add(loop.left_out)


def _ahead(loop: FetchLoop, chunks: Iterable[Chunk]) -> Generator[Chunk]:
    """The chunks of a loop that runs in a thread of its own, until this is closed."""
    # One more is in the hands of the thread.
    queue: Queue[Chunk | _Over] = Queue(FETCHES_AHEAD - 1)
    arguments = (loop, chunks, queue)
    thread = Thread(target=_run, args=arguments, name=f"read {loop.partition}", daemon=True)
    thread.start()
    try:
        while not isinstance(got := queue.get(), _Over):
            yield got
        if got.error is not None:
            raise got.error
    finally:
        loop.stopped.set()
        while not queue.empty():
            try:
                queue.get_nowait()
            except Empty:
                break
        thread.join()


def _run(loop: FetchLoop, chunks: Iterable[Chunk], queue: Queue[Chunk | _Over]) -> None:
    over = _Over(None)
    try:
        for chunk in chunks:
            if not _handed_over(chunk, loop, queue):
                return
    except BaseException as error:  # the caller's thread raises it
        over = _Over(error)
    _handed_over(over, loop, queue)


def _handed_over(got: Chunk | _Over, loop: FetchLoop, queue: Queue[Chunk | _Over]) -> bool:
    while not loop.stopped.is_set():
        try:
            queue.put(got, timeout=STOP_LOOK_S)
        except Full:
            continue
        return True
    return False
