"""A broker in the test's own process, logs filled behind its back, and fetches of any age.

    with Shelf(tmp_path) as shelf:
        shelf.topic("orders")
        shelf.store("orders", build_batch(rows), build_messages(rows, magic=1))
        entry = shelf.fetch("orders", 0, version=2)

What is stored is given as a producer would send it; the log places it. The event loop turns only
while an answer is waited for.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from protocol.messages.api_versions import ApiVersionsRequest
from protocol.records.batch import Batch
from protocol.records.layout import (
    HEADER_SIZE,
    INT16,
    INT32,
    LAST_OFFSET_DELTA_POSITION,
    LENGTH_POSITION,
    MAGIC_POSITION,
    RECORD_COUNT_POSITION,
)
from protocol.records.legacy import Message, MessageSet, read_messages
from protocol.records.walk import walk
from protocol.registry import APIS
from storage.steps import run_here
from tests.records.corpus import reseal
from tests.support.caller import NOW_MS, Target, fetch_request
from tests.support.fake_connection import FakeClient, InProcessBroker

if TYPE_CHECKING:
    from pathlib import Path

    from broker.fetching.conversion import Conversions
    from broker.partitions.topic import Topic
    from protocol.messages.fetch import FetchRequest, FetchResponse
    from protocol.records.record import Record
    from protocol.registry import Api
    from protocol.schema import Message as RequestMessage
    from storage.log import Log

    Fetched = FetchResponse.Topic.Partition

FETCH, API_VERSIONS = APIS[1], APIS[18]
CLIENT_ID = struct.pack(">h", -1)
BY_ID_SINCE = 13


class Reader:
    """One client, which has at most one fetch in flight."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.client = FakeClient(shelf)
        shelf.clients.append(self.client)
        self._seen = 0
        self._received = bytearray()
        self._version = 0
        self._correlation_id = 0

    def introduce(self, software_name: str, software_version: str) -> None:
        """Say who it is, as clients do in the first request of a connection."""
        who = ApiVersionsRequest(
            client_software_name=software_name, client_software_version=software_version
        )
        self._send(API_VERSIONS, who, 3)
        self._shelf.turn_until(self.has_answer, within_s=20)
        self._received.clear()

    def ask(self, request: FetchRequest, version: int) -> None:
        self._version = version
        self._send(FETCH, request, version)

    def _send(self, api: Api, request: RequestMessage, version: int) -> None:
        self._correlation_id += 1
        header = struct.pack(">hhi", api.key, version, self._correlation_id) + CLIENT_ID
        if version >= api.first_flexible:
            header += b"\0"
        body = request.encode(version)
        self.client.feed(struct.pack(">i", len(header) + len(body)) + header + body)

    def has_answer(self) -> bool:
        """Whether a whole answer has come; large slices come through the socket."""
        transport = self.client.transport
        for data in transport.writes[self._seen :]:
            self._received += data
        self._seen = len(transport.writes)
        while True:
            try:
                data = transport.far.recv(1 << 20)
            except BlockingIOError:
                break
            self._received += data
        received = self._received
        return len(received) >= 4 and len(received) >= 4 + INT32.unpack_from(received)[0]

    def answer(self) -> FetchResponse:
        self._shelf.turn_until(self.has_answer, within_s=20)
        size = 4 + INT32.unpack_from(self._received)[0]
        frame = bytes(self._received[4:size])
        del self._received[:size]
        assert INT32.unpack_from(frame)[0] == self._correlation_id
        start = 5 if self._version >= FETCH.first_flexible else 4
        decoded: Any = FETCH.response.decode(self._version, frame[start:])
        answer: FetchResponse = decoded
        return answer

    def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        self.ask(request, version)
        return self.answer()


class Shelf(InProcessBroker):
    """The broker with its topics, and the counters of its conversions."""

    def __init__(self, data: Path, **settings: str) -> None:
        super().__init__(data, **settings)
        self.clients = self._clients

    @property
    def conversions(self) -> Conversions:
        return self.running.broker.conversions

    def topic(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        return run_here(self.running.broker.topics.create(name, partitions, overrides))

    def log(self, topic: str, partition: int = 0) -> Log:
        return self.running.broker.topics.by_name[topic].partitions[partition].log

    def store(self, topic: str, *sets: bytes | bytearray, partition: int = 0) -> None:
        """Append batches, wrappers and runs of messages, and wake who waits for them."""
        found = self.running.broker.topics.by_name[topic].partitions[partition]
        log = found.log
        for data in sets:
            view = memoryview(bytearray(data))
            if view[MAGIC_POSITION] == 2:
                log.append(view, Batch(view).header(), now_ms=NOW_MS)
            else:
                log.append_messages(_set(view), now_ms=NOW_MS)
            log.write()
            found.wake(len(data))

    def reader(self) -> Reader:
        return Reader(self)

    def fetch(
        self,
        topic: str,
        offset: int = 0,
        *,
        version: int,
        partition: int = 0,
        max_bytes: int = 1 << 20,
        reader: Reader | None = None,
        **options: Any,
    ) -> Fetched:
        """One partition's entry, by a client of its own unless one is given. The fetch does not
        wait for more data."""
        name: str | bytes = topic
        if version >= BY_ID_SINCE:
            name = self.running.broker.topics.by_name[topic].topic_id
        wanted = Target(name, offset, partition, partition_max_bytes=max_bytes)
        answer = (reader or self.reader()).fetch(fetch_request(wanted, **options), version)
        ((entry,),) = [found.partitions for found in answer.responses]
        found: Fetched = entry
        return found

    def read_all(
        self, topic: str, *, version: int, offset: int = 0, max_bytes: int = 1 << 20
    ) -> list[Record]:
        """Every record from an offset on, as a consumer that asks until nothing comes."""
        records: list[Record] = []
        while True:
            entry = self.fetch(topic, offset, version=version, max_bytes=max_bytes)
            assert entry.error_code == 0
            found = [record for record in records_of(entry.records) if record.offset >= offset]
            if not found:
                assert offset == entry.high_watermark or not len(entry.records)
                return records
            records += found
            offset = found[-1].offset + 1


def _set(view: memoryview) -> MessageSet:
    records = list(read_messages(view))
    first = Message(view)
    latest = max([record.timestamp_ms for record in records])
    if first.codec:
        delta = len(records) - 1
    else:
        delta = [record.timestamp_ms for record in records].index(latest)
    return MessageSet(
        view,
        magic=first.magic,
        compressed=bool(first.codec),
        record_count=len(records),
        max_timestamp=latest if first.magic else -1,
        max_timestamp_delta=delta if first.magic else -1,
    )


def records_of(data: bytes | memoryview | None) -> list[Record]:
    """The records of fetched entries of any format, as a consumer sees them; none of control
    batches. An entry cut at the end is ignored."""
    whole = memoryview(bytes(data or b""))
    found: list[Record] = []
    for position, size, magic in walk(whole):
        entry = whole[position : position + size]
        if magic < 2:
            found += read_messages(entry)
        elif not Batch(entry).is_control:
            assert Batch(entry).is_intact()
            found += Batch(entry).records()
    return found


def magics_of(data: bytes | memoryview | None) -> list[int]:
    """The format of each whole entry."""
    return [magic for _, _, magic in walk(memoryview(bytes(data or b"")))]


def with_trailing_hole(batch: bytes, offsets: int) -> bytes:
    """The batch as if compaction had taken its last records: it covers so many more offsets."""
    changed = bytearray(batch)
    (delta,) = INT32.unpack_from(changed, LAST_OFFSET_DELTA_POSITION)
    INT32.pack_into(changed, LAST_OFFSET_DELTA_POSITION, delta + offsets)
    return bytes(reseal(changed))


def emptied(batch: bytes) -> bytes:
    """The batch as if compaction had taken all of its records."""
    changed = bytearray(batch[:HEADER_SIZE])
    INT32.pack_into(changed, LENGTH_POSITION, HEADER_SIZE - 12)
    INT16.pack_into(changed, 21, 0)
    INT32.pack_into(changed, RECORD_COUNT_POSITION, 0)
    return bytes(reseal(changed))
