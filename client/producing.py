"""Produce requests on their way to the leaders of partitions.

A broker takes one batch of format 2 for each partition in a request, so that several go out in
requests one behind the other. Of formats 0 and 1 it takes any number of plain messages, but
(from Kafka 0.11 on) one wrapper only. A broker answers in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from client.errors import ConnectionLost, Failure, NoVersion, Refused, Unreachable
from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.partitions import TopicPartition
from protocol.records.layout import CODEC_MASK, MESSAGE_ATTRIBUTES_POSITION
from protocol.records.walk import walk
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client.connection import Connection
    from client.routing import Router
    from protocol.client import Sent

EntryBytes = bytes | bytearray | memoryview

PURPOSE = "produce"
"""A connection of its own: an answer is not kept waiting behind a fetch that waits for records."""
MAX_IN_FLIGHT = 32
"""Requests on one connection without an answer; more wait for the oldest answer to come."""
ACKS_ALL = -1

# Record formats by version of Produce, and the first in which topics go by id only.
TAKES_FORMAT_1, TAKES_FORMAT_2, BY_ID = 2, 3, 13

MAYBE_STORED = frozenset({
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_SERVER_ERROR,
})  # fmt: skip
"""Said of what may have been written for all that."""
NOT_NOW = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
})  # fmt: skip
"""Said of what was not written, and may be sent again."""


class ProduceUnknown(Exception):
    """Not all of the entries were stored, as far as is known. Look at the end of the partition
    before anything is sent once more.

    `stored` is how many requests (in format 2, entries) are known to be stored, the first ones, and
    `base_offset` is the offset that their first record got. With `may_send_rest` the others have
    certainly not been stored.
    `code` is what the broker said, 0 if the connection was lost.
    """

    def __init__(
        self, partition: TopicPartition, stored: Sequence[Produced], why: Produced, *, rest: bool
    ) -> None:
        text = said(why.code) if why.code else why.message or "offsets were given out of order"
        super().__init__(f"{partition}: it is not known what was stored: {text}")
        self.partition = partition
        self.stored = len(stored)
        self.base_offset = stored[0].base_offset if stored else -1
        self.code = why.code
        self.may_send_rest = rest
        self._text = text

    def in_the_end(self) -> Failure:
        """The failure to raise when sending the rest once more has not helped either."""
        if self.code == 0:
            return Unreachable(self._text)
        return refusal(self.partition, self.code, "")


class Produced(NamedTuple):
    """The outcome of one request: the offset given to its first record, or an error's code."""

    base_offset: int
    code: int
    message: str


class Producing(NamedTuple):
    """The requests that `begin` sent, for `finish`."""

    partition: TopicPartition
    connection: Connection
    sent: list[Sent]
    failure: str
    """Why not all of it was sent; empty if it was."""


def formats(connection: Connection) -> tuple[int, int]:
    """The oldest and the newest record format that the broker takes."""
    newest = connection.version(ProduceRequest)
    oldest = 0 if connection.offers(ProduceRequest, newest=TAKES_FORMAT_2 - 1) else 2
    return oldest, 2 if newest >= TAKES_FORMAT_2 else int(newest >= TAKES_FORMAT_1)


def sets(entries: Sequence[EntryBytes], magic: int) -> list[EntryBytes]:
    """The same bytes, cut and joined into what a request may carry."""
    if magic == 2:
        return list(entries)
    found: list[EntryBytes] = []
    plain = bytearray()
    for entry in entries:
        view = memoryview(entry)
        for position, size, _ in walk(view):
            message = view[position : position + size]
            if not message[MESSAGE_ATTRIBUTES_POSITION] & CODEC_MASK:
                plain += message
                continue
            if plain:
                found.append(plain)
                plain = bytearray()
            found.append(message)
    return [*found, plain] if plain else found


def begin(
    router: Router,
    partition: TopicPartition,
    sets: Sequence[EntryBytes],
    *,
    magic: int,
    transactional_id: str | None = None,
    newest: int | None = None,
) -> Producing:
    """Send sets of one format to the leader, in a version up to `newest`, and do not wait for the
    last answers.

    Raises ConnectionLost and Again as long as nothing has been sent, Refused if the broker is too
    old or too new for the format.
    """
    connection, topic_id = router.leader(partition, PURPOSE)
    version = _version(connection, partition, topic_id, magic, newest)
    timeout_ms = int(router.timeout_s * 1000)
    sent: list[Sent] = []
    failure = ""
    for records in sets:
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=ACKS_ALL,
            timeout_ms=timeout_ms,
            topic_data=[
                ProduceRequest.Topic(
                    topic_id=topic_id,
                    name=partition.topic,
                    partition_data=[
                        ProduceRequest.Topic.Partition(
                            index=partition.partition,
                            records=memoryview(records),
                        )
                    ],
                )
            ],
        )
        try:
            while connection.in_flight >= MAX_IN_FLIGHT:
                connection.read_one()
            sent.append(connection.send(request, version))
        except ConnectionLost as error:
            failure = str(error)
            break
    return Producing(partition, connection, sent, failure)


def outcomes(producing: Producing) -> tuple[list[Produced], str]:
    """The outcome of each request, as far as its answer came; and why not of all."""
    found: list[Produced] = []
    try:
        for sent in producing.sent:
            answer = producing.connection.receive(sent, ProduceResponse)
            found.append(_produced(answer, producing.partition.partition))
    except ConnectionLost as error:
        return found, producing.failure or str(error)
    return found, producing.failure


def finish(producing: Producing) -> int:
    """Wait for the answers: the offset of the first record. Raises ProduceUnknown, Refused."""
    partition = producing.partition
    found, lost = outcomes(producing)
    stored: list[Produced] = []
    for produced in found:
        if produced.code or (stored and produced.base_offset <= stored[-1].base_offset):
            break
        stored.append(produced)
    rest = found[len(stored) :]
    if not rest and not lost:
        return stored[0].base_offset
    why = rest[0] if rest else Produced(-1, 0, lost)
    if why.code and why.code not in MAYBE_STORED | NOT_NOW:
        raise refusal(partition, why.code, why.message)
    # What was sent in full and has no answer may be stored.
    answered = len(found) == len(producing.sent)
    certain = answered and all(produced.code in NOT_NOW for produced in rest)
    raise ProduceUnknown(partition, stored, why, rest=certain)


def refusal(partition: TopicPartition, code: int, message: str) -> Refused:
    """The failure that says so, with the code."""
    more = f" ({message})" if message and message not in said(code) else ""
    return Refused(f"{partition} does not take what it is given: {said(code)}{more}", code)


def _version(
    connection: Connection,
    partition: TopicPartition,
    topic_id: bytes,
    magic: int,
    newest: int | None,
) -> int:
    oldest = TAKES_FORMAT_2
    if magic < 2:
        oldest, newest = 0, TAKES_FORMAT_2 - 1
    if newest is None and topic_id == ZERO_UUID:
        newest = BY_ID - 1
    try:
        return connection.version(ProduceRequest, oldest, newest)
    except NoVersion as error:
        text = f"{partition} takes no records of format {magic}: {error}"
        raise Refused(text, ErrorCode.UNSUPPORTED_VERSION) from None


def _produced(answer: ProduceResponse, index: int) -> Produced:
    for topic in answer.responses:
        for entry in topic.partition_responses:
            if entry.index == index:
                return Produced(entry.base_offset, entry.error_code, entry.error_message or "")
    return Produced(-1, ErrorCode.UNKNOWN_SERVER_ERROR, "the answer leaves the partition out")
