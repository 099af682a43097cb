"""Frames of the group APIs for the raw load, and the few calls that come before it.

They are made from our own declarations of the messages, which are proved elsewhere: a test compares
them with the reference schemas. The loads send them as bytes.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import crc32c

from bench import frames
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.registry import APIS
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.servers import Server
    from protocol.schema import Message

OFFSET_COMMIT_VERSION = 8
OFFSET_FETCH_VERSION = 8
"""Of version 8 a group's error comes last; the error of its first partition is looked at."""
OFFSET_COMMIT, CONSUMER_GROUP_HEARTBEAT = 8, 68
COMMITTED = 1_000_000
"""The offset that every commit here is of."""
PATIENCE_S = 60.0
#: Loading, not available yet, or not known yet to be here: asked again.
_NOT_YET = frozenset({14, 15, 16})


def frame(request: Message, version: int) -> bytes:
    """A whole request frame with its length; its correlation id is 0."""
    api = APIS[type(request).key]
    flexible = version >= api.first_flexible
    return frames.frame(api.key, version, request.encode(version), flexible=flexible)


def body(answer: bytes, message: type[Message], version: int) -> bytes:
    """The body of an answer that comes without its length."""
    return answer[5 if version >= APIS[message.key].first_flexible else 4 :]


def error_position(answer: Callable[[int], Message], version: int) -> int:
    """The position of the error code in answers like this one, after the length.

    `answer` makes one with a given code: the first byte in which two differ is the code's.
    """
    without, with_one = answer(0), answer(0x7F7F)
    pairs = zip(without.encode(version), with_one.encode(version), strict=True)
    at = next(at for at, (one, other) in enumerate(pairs) if one != other)
    return at + (5 if version >= APIS[type(without).key].first_flexible else 4)


def offset_commit(
    group: str,
    topic: str,
    partitions: Sequence[int],
    *,
    offset: int = COMMITTED,
    member_id: str = "",
    generation_id: int = -1,
) -> bytes:
    """OffsetCommit 8 of the same offset for some partitions of one topic, without metadata."""
    of = OffsetCommitRequest.Topic
    entries = [
        of.Partition(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=0,
            committed_metadata="",
        )
        for index in partitions
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        topics=[of(name=topic, partitions=entries)],
    )
    return frame(request, OFFSET_COMMIT_VERSION)


def offset_commit_error_position(topic: str) -> int:
    """Of the first partition in an answer to `offset_commit`; of less than 127 partitions."""
    of = OffsetCommitResponse.Topic

    def answer(code: int) -> Message:
        entry = of.Partition(partition_index=0, error_code=code)
        return OffsetCommitResponse(topics=[of(name=topic, partitions=[entry])])

    return error_position(answer, OFFSET_COMMIT_VERSION)


def offset_fetch_request(groups: Sequence[str], topic: str, partitions: Sequence[int]) -> Message:
    """OffsetFetch of the same partitions of each group."""
    of = OffsetFetchRequest.Group
    topics = [of.Topic(name=topic, partition_indexes=list(partitions))]
    return OffsetFetchRequest(groups=[of(group_id=group, topics=topics) for group in groups])


def offset_fetch_error_position(group: str, topic: str, partitions: int) -> int:
    """Of the first partition in an answer to `offset_fetch_request` for one group."""
    of = OffsetFetchResponse.Group.Topic

    def answer(code: int) -> Message:
        entries = [
            of.Partition(
                partition_index=0,
                committed_offset=0,
                metadata="",
                error_code=0 if number else code,
            )
            for number in range(partitions)
        ]
        found = of(name=topic, partitions=entries)
        return OffsetFetchResponse(
            groups=[OffsetFetchResponse.Group(group_id=group, topics=[found])]
        )

    return error_position(answer, OFFSET_FETCH_VERSION)


def stored_commit(group: str, topic: str, partition: int) -> bytes:
    """The batch that a commit of one partition becomes: one record, key version 1, value 3."""
    now_ms = time.time_ns() // 1_000_000
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in (group, topic))
    key = struct.pack(">h", 1) + names + struct.pack(">i", partition)
    value = struct.pack(">hqihq", 3, COMMITTED, 0, 0, now_ms)
    record = b"\0" + frames.varint(0) + frames.varint(0)
    record += frames.varint(len(key)) + key + frames.varint(len(value)) + value + b"\0"
    record = frames.varint(len(record)) + record
    checked = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, len(checked) + 9, 0, 2, crc32c.crc32c(checked)) + checked


def speaks(server: Server, key: int) -> bool:
    """Whether a server answers this API at all."""
    with WireClient("127.0.0.1", server.port) as client:
        answer = client.call(ApiVersionsRequest(), 0)
    return any(api.api_key == key for api in answer.api_keys)


def wait_for_coordinator(server: Server, groups: Sequence[str]) -> None:
    """Returns when these groups can be asked for; the first call may make the topic of offsets."""
    end_s = time.monotonic() + PATIENCE_S
    with WireClient("127.0.0.1", server.port, timeout_s=PATIENCE_S) as client:
        while True:
            found = client.call(FindCoordinatorRequest(coordinator_keys=list(groups)), 4)
            codes = {each.error_code for each in found.coordinators}
            if codes == {0}:
                asked = offset_fetch_request(groups, "none", [0])
                answer = client.call(asked, OFFSET_FETCH_VERSION)
                codes = {each.error_code for each in answer.groups}
                if codes == {0}:
                    return
            if not codes <= _NOT_YET | {0} or time.monotonic() > end_s:
                raise RuntimeError(f"{server.name} has no coordinator: error codes {codes}")
            time.sleep(0.05)
