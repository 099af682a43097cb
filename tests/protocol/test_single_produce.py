"""The hand-shaped form of Produce against the compiled one, byte for byte."""

from __future__ import annotations

import random

import pytest

from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.single_produce import FIRST_VERSION, SingleAnswer, SingleProduce, reader, writer

VERSIONS = range(FIRST_VERSION, 14)
NAMES = ["t", "orders.v1", "x" * 126, "y" * 127, "z" * 249, "größe"]
TOPIC_ID = bytes(range(16))


def request(
    name: str = "t", records: bytes | None = b"r" * 70, acks: int = 1, index: int = 3
) -> ProduceRequest:
    view = None if records is None else memoryview(records)
    partition = ProduceRequest.Topic.Partition(index=index, records=view)
    topic = ProduceRequest.Topic(name=name, topic_id=TOPIC_ID, partition_data=[partition])
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])


def read(version: int, body: bytes) -> SingleProduce | None:
    """With something before and after it, as in a receive buffer."""
    return reader(version)(bytearray(b"\x55" * 7 + body + b"\x66" * 9), 7, 7 + len(body))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 1, 61, 127, 128, 16_383, 16_384, 70_000])
def test_the_common_shape_is_read_as_the_compiled_decoder_reads_it(
    version: int, name: str, size: int
) -> None:
    body = request(name, bytes(size), acks=-1, index=70_000).encode(version)

    single = read(version, body)

    if single is None:
        # Only a name whose length takes two bytes is left to the compiled decoder.
        assert 9 <= version <= 12
        assert len(name.encode()) >= 127
        return
    general = ProduceRequest.decode(version, body)
    (topic,) = general.topic_data
    (partition,) = topic.partition_data
    assert single.acks == general.acks
    assert single.topic == (topic.topic_id if version >= 13 else topic.name.encode())
    assert single.index == partition.index
    assert single.records == partition.records


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("transactional_id", ["", "tx", "größe", "x" * 126, "y" * 127, "z" * 300])
def test_a_transactional_id_is_read_as_the_compiled_decoder_reads_it(
    version: int, name: str, transactional_id: str
) -> None:
    sent = request(name, bytes(70))
    sent.transactional_id = transactional_id
    body = sent.encode(version)

    single = read(version, body)

    if single is None:
        assert version >= 9
        assert max(len(name.encode()), len(transactional_id)) >= 127
        return
    general = ProduceRequest.decode(version, body)
    made = single.general(version)
    made.timeout_ms = general.timeout_ms
    assert made.encode(version) == body
    assert made.transactional_id == transactional_id


@pytest.mark.parametrize("version", VERSIONS)
def test_other_shapes_are_left_to_the_compiled_decoder(version: int) -> None:
    two_topics = request()
    two_topics.topic_data = two_topics.topic_data * 2
    two_partitions = request()
    two_partitions.topic_data[0].partition_data *= 2
    nothing = request()
    nothing.topic_data = []
    no_partitions = request()
    no_partitions.topic_data[0].partition_data = []
    for message in (two_topics, two_partitions, nothing, no_partitions):
        assert read(version, message.encode(version)) is None
    assert read(version, request(records=None).encode(version)) is None
    assert read(version, request().encode(version) + b"\0") is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_whatever_is_read_would_have_been_read_by_the_compiled_decoder(
    version: int, transactional_id: str | None
) -> None:
    rng = random.Random(version)
    sent = request(records=rng.randbytes(200))
    sent.transactional_id = transactional_id
    whole = sent.encode(version)
    found = 0
    for _ in range(4000):
        body = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(min(60, len(body)))] = rng.randrange(256)
        cut = bytes(body[: rng.randrange(len(body) + 1)] if rng.random() < 0.3 else body)
        single = read(version, cut)
        if single is None:
            continue
        found += 1
        general = ProduceRequest.decode(version, cut)
        assert single.transactional_id == general.transactional_id
        (topic,) = general.topic_data
        (partition,) = topic.partition_data
        assert (single.index, single.records) == (partition.index, partition.records)
    assert found > 100


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("error_code", [0, 56])
def test_the_answer_is_written_as_the_compiled_encoder_writes_it(
    version: int, name: str, error_code: int
) -> None:
    topic = TOPIC_ID if version >= 13 else name.encode()
    if version < 13 and read(version, request(name).encode(version)) is None:
        return  # never read in this shape, so never answered in it
    answer = SingleAnswer(topic, 70_000, 2**40, 1_700_000_000_000, 12)
    answer.error_code = error_code
    partition = ProduceResponse.Topic.Partition(
        index=70_000,
        error_code=error_code,
        base_offset=2**40,
        log_append_time_ms=1_700_000_000_000,
        log_start_offset=12,
    )
    entry = ProduceResponse.Topic(name=name, topic_id=TOPIC_ID, partition_responses=[partition])

    out = bytearray()
    writer(version)(answer, out)

    assert bytes(out) == ProduceResponse(responses=[entry]).encode(version)
    assert answer.general(version).encode(version) == bytes(out)
