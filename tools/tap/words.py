"""Frames told in words."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from broker.faults.conversations import TEXT_MAX, size_text, text_of
from broker.faults.proxy.answers import METADATA_KEY, TopicNames
from broker.faults.proxy.frames import answer_version, decoded_answer, decoded_request
from protocol.errors import KafkaError, Malformed
from protocol.records.batch import Batch
from protocol.records.compression import NAMES
from protocol.records.layout import CODEC_MASK, MESSAGE_ATTRIBUTES_POSITION
from protocol.records.walk import walk
from protocol.schema import SECRET, Struct

if TYPE_CHECKING:
    from broker.faults.proxy.frames import RequestHead
    from protocol.registry import Api
    from protocol.schema import Message

NO_LIMIT = 1 << 62


class Words:
    """What is said in frames. It learns the names of topics from answers to Metadata."""

    def __init__(self, *, is_full: bool) -> None:
        """`is_full`: texts are not cut at TEXT_MAX characters."""
        self._limit = NO_LIMIT if is_full else TEXT_MAX
        self._names = TopicNames()

    def request(self, head: RequestHead | None, frame: bytes) -> str:
        """The fields of a request."""
        if head is None:
            return not_understood(frame)
        try:
            return self.message(decoded_request(head, frame), head.version)
        except Malformed as error:
            return not_understood(frame, error)

    def answer(self, head: RequestHead | None, frame: bytes) -> str:
        """The fields of the answer to the request with this header."""
        if head is None:
            return not_understood(frame)
        version = answer_version(head, frame)
        try:
            message = decoded_answer(head, version, frame)
        except Malformed as error:
            return not_understood(frame, error)
        if head.api.key == METADATA_KEY:
            self._names.learn(message)
        return self.message(message, version)

    def message(self, message: Message, version: int) -> str:
        """The fields of a message that is decoded."""
        return text_of(message, version, self._names, records_text=records_text, limit=self._limit)


def not_understood(frame: bytes, error: Malformed | None = None) -> str:
    """Bytes without a meaning here."""
    why = "" if error is None else f": {error}"
    return f"<{len(frame)} bytes that are not understood{why}>"


def records_text(records: memoryview) -> str:
    """Records by their number, format, codec and bytes."""
    count = entries = 0
    kinds: dict[str, None] = {}
    try:
        for position, size, magic in walk(records):
            entries += 1
            entry = records[position : position + size]
            if magic == 2:
                batch = Batch(entry)
                count += batch.record_count
                codec = batch.codec
                kind = "marker of a transaction, " if batch.is_control else ""
            else:
                count += 1  # of a wrapper nobody knows before it is opened
                codec = entry[MESSAGE_ATTRIBUTES_POSITION] & CODEC_MASK
                kind = f"format {magic}, "
            name = NAMES[codec] if codec < len(NAMES) else f"codec {codec}"
            kinds[f"{kind}{name}"] = None
    except KafkaError:
        return size_text(records)
    if not entries:
        return size_text(records)
    what = f"{count} record{'s'[: count != 1]}"
    of_batches = f" in {entries} entries" if entries > 1 else ""
    return f"<{what}{of_batches}, {'; '.join(kinds)}, {len(records)} bytes>"


@cache
def has_secrets(api: Api) -> bool:
    """Whether messages of this API have fields that are not to be kept."""
    return _has_secrets(api.request) or _has_secrets(api.response)


def _has_secrets(kind: type[Struct]) -> bool:
    if any(field.name in SECRET for field in kind._fields):
        return True
    inner = (
        one for one in vars(kind).values() if isinstance(one, type) and issubclass(one, Struct)
    )
    return any(_has_secrets(one) for one in inner)
