"""The hand-shaped form of Fetch against the compiled one, byte for byte."""

from __future__ import annotations

import random
import struct

import pytest

from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.primitives import Written
from protocol.single_fetch import FIRST_VERSION, SingleFetch, SingleRecords, reader, writer

VERSIONS = range(FIRST_VERSION, 19)
NAMES = ["t", "orders.v1", "x" * 126, "y" * 127, "größe"]
TOPIC_ID = bytes(range(16))
SIZES = [1, 126, 127, 16_382, 16_383, 900_000, 2**31 - 1]


class Slice:
    """Bytes of a file, as far as the codecs look at them."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def request(name: str = "t", *, isolation_level: int = 1) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(
        partition=3,
        current_leader_epoch=7,
        fetch_offset=2**40,
        last_fetched_epoch=5,
        log_start_offset=11,
        partition_max_bytes=1 << 20,
    )
    topic = FetchRequest.Topic(topic=name, topic_id=TOPIC_ID, partitions=[partition])
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=isolation_level,
        topics=[topic],
    )


def read(version: int, body: bytes) -> SingleFetch | None:
    """With something before and after it, as in a receive buffer."""
    return reader(version)(bytearray(b"\x55" * 7 + body + b"\x66" * 9), 7, 7 + len(body))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_the_common_shape_is_read_as_the_compiled_decoder_reads_it(version: int, name: str) -> None:
    body = request(name).encode(version)

    single = read(version, body)

    if single is None:
        # Names that are long or not ASCII are left to the compiled decoder.
        assert version == 12
        assert not (len(name) < 127 and name.isascii())
        return
    assert single.general(version).encode(version) == body


@pytest.mark.parametrize("version", VERSIONS)
def test_other_shapes_are_left_to_the_compiled_decoder(version: int) -> None:
    two_topics, two_partitions, nothing, no_partitions = (request() for _ in range(4))
    two_topics.topics = two_topics.topics * 2
    two_partitions.topics[0].partitions *= 2
    nothing.topics = []
    no_partitions.topics[0].partitions = []
    session, forgotten, racked, cluster = (request() for _ in range(4))
    session.session_id, session.session_epoch = 5, 3
    forgotten.forgotten_topics_data = [FetchRequest.ForgottenTopic(topic="t", partitions=[1])]
    racked.rack_id = "a"
    cluster.cluster_id = "c"
    others = [two_topics, two_partitions, nothing, no_partitions]
    others += [session, forgotten, racked, cluster]
    follower = request()
    if version < 15:
        follower.replica_id = 2
    else:
        follower.replica_state = FetchRequest.ReplicaState(replica_id=2)
    others.append(follower)

    for message in others:
        assert read(version, message.encode(version)) is None
    assert read(version, request().encode(version) + b"\0") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_is_read_would_have_been_read_by_the_compiled_decoder(version: int) -> None:
    rng = random.Random(version)
    whole = request().encode(version)
    found = 0
    for _ in range(4000):
        body = bytearray(whole)
        for _ in range(rng.randrange(1, 3)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        cut = bytes(body[: rng.randrange(len(body) + 1)] if rng.random() < 0.3 else body)
        single = read(version, cut)
        if single is None:
            continue
        found += 1
        assert single.general(version).encode(version) == cut
        assert FetchRequest.decode(version, cut).encode(version) == cut
    assert found > 100


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES[:3])
@pytest.mark.parametrize("aborted", [None, 0, 1, 126, 127, 5_000])
@pytest.mark.parametrize("size", SIZES)
def test_the_answer_is_written_as_the_compiled_encoder_writes_it(
    version: int, name: str, aborted: int | None, size: int
) -> None:
    listed = [(number, 2**40 + number) for number in range(aborted or 0)]
    data = b"".join(struct.pack(">qq", *one) + b"\0" for one in listed)
    records = Slice(size)
    answer = SingleRecords(
        TOPIC_ID if version >= 13 else name.encode(),
        70_000,
        high_watermark=2**41,
        last_stable_offset=2**40,
        log_start_offset=12,
        aborted=None if aborted is None else Written(aborted, data),
        records=records,
    )
    partition = FetchResponse.Topic.Partition(
        partition_index=70_000,
        error_code=0,
        high_watermark=2**41,
        last_stable_offset=2**40,
        log_start_offset=12,
        aborted_transactions=None
        if aborted is None
        else [
            FetchResponse.Topic.Partition.AbortedTransaction(producer_id=one, first_offset=first)
            for one, first in listed
        ],
        records=records,
    )
    entry = FetchResponse.Topic(topic=name, topic_id=TOPIC_ID, partitions=[partition])
    expected = bytearray()
    slices: list[tuple[int, object]] = []
    FetchResponse.encoder(version)(FetchResponse(responses=[entry]), expected, slices)

    out = bytearray()
    tail = writer(version)(answer, out)

    ((at, _),) = slices
    assert bytes(out) == bytes(expected[:at])
    assert tail == bytes(expected[at:])
