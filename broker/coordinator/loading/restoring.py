"""Filling a shard from the records of a snapshot (`snapshot_records` has the format).

Their checksums have been checked. All else is doubted all the same: what makes no sense is refused
whole, and then the log is replayed. Nothing is made for a number that the bytes cannot hold.
"""

from __future__ import annotations

import sys
from array import array
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING

from broker.coordinator.loading import snapshot_records as kinds
from broker.coordinator.loading.replay import replay
from broker.coordinator.loading.snapshot_records import (
    BLOCK_BYTES,
    COLUMN_ENTRY_BYTES,
    COUNT,
    EXPIRY_ENTRY,
    METADATA_HEAD,
    NAME_SIZE,
    PENDING_HEAD,
    TOPIC,
    About,
)
from broker.coordinator.offsets.blocks import Block, look_into, record_size
from broker.coordinator.offsets.buckets import ENTRY_BYTES, KEY
from broker.coordinator.offsets.columns import Columns
from broker.coordinator.offsets.commit import Committed
from broker.coordinator.offsets.committed import HALF
from protocol.logdata.offsets import OffsetCommitKey, OffsetCommitValue, decode_key, decode_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.loading.snapshot_records import Origin, SnapshotRecord
    from broker.coordinator.shard_state import ShardState


class UnusableSnapshot(ValueError):
    """A snapshot that cannot be used; the text says why, for the log."""


class Restoring:
    """Fills `state`, which is empty, from a snapshot of `origin`: `take` all records, then
    `finish`. After UnusableSnapshot there is something in the state that has to be cleared.
    """

    __slots__ = ("_about", "_blocks", "_entries", "_is_filled", "_now_ms", "_origin", "_shifts",
                 "_state", "_topics")  # fmt: skip

    def __init__(self, state: ShardState, origin: Origin, *, now_ms: int) -> None:
        """`now_ms` is monotonic: then the sessions of members begin."""
        self._state = state
        self._origin = origin
        self._now_ms = now_ms
        self._about: About | None = None
        self._topics: dict[int, str] = {}
        self._shifts: dict[int, int] = {}
        """The difference to add to the keys of a topic, by its number in the snapshot."""
        self._blocks: list[Block] = []
        self._entries = 0
        self._is_filled = False

    def take(self, records: list[SnapshotRecord]) -> None:
        """Some records, in the order in which they were written. Raises UnusableSnapshot."""
        for key, value in records:
            try:
                if self._about is None:
                    self._begin(About.decode((key, value)))
                elif not key or key[0] not in _TAKE:
                    raise UnusableSnapshot("there is no such kind")
                else:
                    _TAKE[key[0]](self, key, value)
            except UnusableSnapshot as error:
                raise UnusableSnapshot(f"the record {key!r:.40}: {error}") from None
            except Exception as error:  # whatever it is that the bytes break, they are not ours
                raise UnusableSnapshot(
                    f"the record {key!r:.40}: {type(error).__name__}: {error}"
                ) from None

    def finish(self) -> None:
        """Complete the state after the last record. Raises UnusableSnapshot."""
        try:
            self._fill()
        except ValueError as error:
            raise UnusableSnapshot(str(error)) from None
        state = self._state
        found = (len(state.offsets), len(state.groups))
        said = None if self._about is None else self._about[1:]
        if found != said:
            raise UnusableSnapshot(f"it holds {found} (offsets, groups), and should hold {said}")

    def _begin(self, about: About) -> None:
        found, expected = about.origin, self._origin
        if expected.last_ms == -1:  # the batch there has been compacted away
            expected = expected._replace(last_ms=found.last_ms)
        for name, ours, theirs in zip(expected._fields, expected, found, strict=True):
            if ours != theirs:
                raise UnusableSnapshot(f"it has {name} {theirs!r}, the log {ours!r}")
        self._about = about

    # The kinds of records

    def _take_topics(self, _key: bytes, value: bytes) -> None:
        position = 0
        while position < len(value):
            number, size = TOPIC.unpack_from(value, position)
            position += TOPIC.size
            self._topics[number] = _text(value, position, size)
            position += size

    def _take_group(self, key: bytes, value: bytes) -> None:
        decoded = decode_key(key[1:])
        if isinstance(decoded, OffsetCommitKey):
            raise UnusableSnapshot("an offset among the groups")
        replay(self._state, decoded, decode_value(decoded, value), now_ms=self._now_ms)

    def _take_pages(self, _key: bytes, value: bytes) -> None:
        """The records of some groups, as they lay in memory; their hashes are others now."""
        (count,) = COUNT.unpack_from(value)
        first = COUNT.size + 2 * count
        data = value[first:]
        if self._is_filled or not count or not 0 < len(data) <= BLOCK_BYTES:
            raise UnusableSnapshot(f"{count} addresses in {len(value)} bytes")
        starts = _numbers("H", value[COUNT.size : first]).tobytes()
        hashes, topics, entries = look_into(starts, data)
        if any([self._topic_shift(number) for number in topics]):  # noqa: C419 (all are looked at)
            data = self._renumbered(starts, data)
        self._blocks.append(Block(hashes, starts, data))
        self._entries += entries

    def _renumbered(self, starts: bytes, data: bytes) -> bytes:
        """A block with the numbers that its topics have now."""
        changed = bytearray(data)
        for start in array("H", starts):
            end = start + record_size(data, start)
            for at in range(end - data[start] * ENTRY_BYTES, end, ENTRY_BYTES):
                (key,) = KEY.unpack_from(data, at)
                KEY.pack_into(changed, at, key + self._shift(key))
        return bytes(changed)

    def _shift(self, key: int) -> int:
        return self._topic_shift((key + HALF) >> 32)

    def _topic_shift(self, number: int) -> int:
        shift = self._shifts.get(number)
        if shift is None:
            ours = self._state.offsets.topic_number(self._topics[number], number)
            shift = self._shifts[number] = (ours - number) << 32
        return shift

    def _fill(self) -> None:
        """Give the table what was gathered for it, while it is empty."""
        if not self._is_filled:
            self._is_filled = True
            self._state.offsets.fill(self._blocks, self._entries)
            self._blocks = []

    def _take_columns(self, key: bytes, value: bytes) -> None:
        self._fill()
        group = _text(key, 1, len(key) - 1)
        count, rest = divmod(len(value), COLUMN_ENTRY_BYTES)
        if rest or not count:
            raise UnusableSnapshot(f"columns of {len(value)} bytes")
        columns = Columns(
            _numbers("Q", value[: 8 * count]),
            _numbers("q", value[8 * count : 16 * count]),
            _numbers("I", value[16 * count : 20 * count]),
            _numbers("i", value[20 * count :]),
        )
        keys = columns.keys
        if not all(map(lt, keys, islice(keys, 1, None))):
            raise UnusableSnapshot("the keys of columns do not ascend")
        shifts = {self._shift(keys[0]), self._shift(keys[-1])}
        if (keys[-1] - keys[0]) >> 31:  # there are several topics
            shifts = set(map(self._shift, keys))
        if shifts != {0}:
            columns.keys = array("Q", [key + self._shift(key) for key in keys])
            columns = Columns.of(*zip(*sorted(columns.entries()), strict=True))
        self._state.offsets.put_columns(group, columns)

    def _take_metadata(self, _key: bytes, value: bytes) -> None:
        position = 0
        while position < len(value):
            group, count, position = _group(value, position)
            for _ in range(count):
                key, size = METADATA_HEAD.unpack_from(value, position)
                position += METADATA_HEAD.size
                text = _text(value, position, size)
                self._state.offsets.put_rare(group, key + self._shift(key), metadata=text)
                position += size

    def _take_expiry(self, _key: bytes, value: bytes) -> None:
        position = 0
        while position < len(value):
            group, count, position = _group(value, position)
            for _ in range(count):
                key, expire_ms = EXPIRY_ENTRY.unpack_from(value, position)
                position += EXPIRY_ENTRY.size
                self._state.offsets.put_rare(group, key + self._shift(key), expire_ms=expire_ms)

    def _take_pending(self, key: bytes, value: bytes) -> None:
        _, producer_id, log_offset = PENDING_HEAD.unpack_from(key)
        place = decode_key(key[PENDING_HEAD.size :])
        committed = None
        if value:
            found: OffsetCommitValue = decode_value(place, value)
            committed = Committed(
                found.offset,
                found.leader_epoch,
                found.metadata,
                found.commit_timestamp,
                found.expire_timestamp,
            )
        self._state.offsets.add_pending(
            producer_id, log_offset, place.group, place.topic, place.partition, committed
        )


_TAKE: dict[int, Callable[[Restoring, bytes, bytes], None]] = {
    kinds.TOPICS: Restoring._take_topics,
    kinds.GROUP: Restoring._take_group,
    kinds.PAGES: Restoring._take_pages,
    kinds.COLUMNS: Restoring._take_columns,
    kinds.METADATA: Restoring._take_metadata,
    kinds.EXPIRY: Restoring._take_expiry,
    kinds.PENDING: Restoring._take_pending,
}


def _numbers(code: str, data: bytes) -> array[int]:
    """Numbers of the file."""
    numbers: array[int] = array(code, data)
    if sys.byteorder != "little":
        numbers.byteswap()
    return numbers


def _text(data: bytes, position: int, size: int) -> str:
    if position + size > len(data):
        raise UnusableSnapshot(f"a text of {size} bytes at {position} of {len(data)}")
    return data[position : position + size].decode("utf-8", "surrogateescape")


def _group(data: bytes, position: int) -> tuple[str, int, int]:
    """A group id, a count, and the position after both."""
    (size,) = NAME_SIZE.unpack_from(data, position)
    position += NAME_SIZE.size
    group = _text(data, position, size)
    (count,) = COUNT.unpack_from(data, position + size)
    return group, count, position + size + COUNT.size
