"""`refused(request, code)`: the code stands wherever a client of each version looks for it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from protocol.messages.fetch import FetchRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.join_group import refused as refused_join
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.offset_fetch import refused as refused_offset_fetch
from protocol.messages.produce import ProduceRequest
from protocol.messages.produce import refused as refused_produce
from protocol.registry import APIS, Api
from protocol.schema import Struct
from tests.protocol.reference_schema import schema_for
from tests.protocol.reference_values import Chance, Source, Zero, tree_of

CODE = 41

# Fields that end in error_code, but say something about a part that a refusal does not reach.
OF_A_PART = {"topic_config_error_code", "acknowledge_error_code"}

# The versions in which a response has no place for an error but in entries that only success has.
NO_PLACE = {("DescribeLogDirs", 0), ("DescribeLogDirs", 1), ("DescribeLogDirs", 2)}

VERSIONS = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
]


def refusal_as_sent(api: Api, version: int, request: Any) -> Any:
    """The refusal as a client of that version sees it."""
    return api.response.decode(version, api.refused(request, CODE).encode(version))


def codes_in_version(message: Struct, version: int) -> list[int]:
    """The codes that this version carries; a field it lacks was decoded to its default."""
    found: list[int] = []
    for field in message._fields:
        if not field.versions.holds(version):
            continue
        value = getattr(message, field.name)
        if field.name.endswith("error_code") and field.name not in OF_A_PART:
            found.append(value)
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Struct):
                found += codes_in_version(inner, version)
    return found


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_a_refusal_says_the_code_and_no_other(api: Api, version: int) -> None:
    schema = schema_for(api.name, "Request", version)
    sources: list[Source] = [Zero(), *(Chance(Random(seed)) for seed in range(5))]
    for source in sources:
        tree = tree_of(schema, version, source)
        request = api.request.decode(version, schema.encode(version, tree))
        sent = refusal_as_sent(api, version, request)
        on_the_wire = codes_in_version(sent, version)
        assert set(on_the_wire) <= {CODE}
        if isinstance(source, Zero) and (api.name, version) not in NO_PLACE:
            assert on_the_wire


def test_a_refused_produce_names_every_partition_and_no_offset() -> None:
    topic = ProduceRequest.Topic
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            topic(
                name="a",
                partition_data=[
                    topic.Partition(index=0, records=memoryview(b"x")),
                    topic.Partition(index=3, records=None),
                ],
            ),
            topic(name="b", partition_data=[topic.Partition(index=1, records=None)]),
        ],
    )
    answer = refused_produce(request, CODE)
    assert [
        (t.name, p.index, p.error_code, p.base_offset)
        for t in answer.responses
        for p in t.partition_responses
    ] == [("a", 0, CODE, -1), ("a", 3, CODE, -1), ("b", 1, CODE, -1)]


@pytest.mark.parametrize("version", range(19))
def test_a_refused_fetch_can_be_sent_in_every_version(version: int) -> None:
    topic = FetchRequest.Topic
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            topic(
                topic="a",
                topic_id=b"0123456789abcdef",
                partitions=[topic.Partition(partition=2, fetch_offset=9, partition_max_bytes=1)],
            )
        ],
    )
    answer = refusal_as_sent(APIS[1], version, request)
    [answered] = answer.responses
    [partition] = answered.partitions
    assert answered.topic == ("a" if version < 13 else "")
    assert answered.topic_id == (bytes(16) if version < 13 else b"0123456789abcdef")
    assert (partition.partition_index, partition.error_code) == (2, CODE)
    assert partition.records == b""
    assert partition.high_watermark == -1
    assert answer.error_code == (CODE if version >= 7 else 0)


def test_a_refused_offset_fetch_says_it_where_each_version_looks() -> None:
    group = OffsetFetchRequest.Group
    old = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequest.Topic(name="a", partition_indexes=[0, 5])]
    )
    new = OffsetFetchRequest(
        groups=[group(group_id="g", topics=None), group(group_id="h", topics=[])]
    )

    first = refused_offset_fetch(old, CODE).topics[0].partitions
    assert [(p.partition_index, p.committed_offset, p.error_code) for p in first] == [
        (0, -1, CODE),
        (5, -1, CODE),
    ]
    assert refused_offset_fetch(old, CODE).error_code == CODE
    assert [(g.group_id, g.error_code) for g in refused_offset_fetch(new, CODE).groups] == [
        ("g", CODE),
        ("h", CODE),
    ]


def test_a_refused_member_keeps_the_id_it_came_with() -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6000,
        member_id="m-1",
        protocol_type="consumer",
        protocols=[],
    )
    assert refused_join(request, CODE).member_id == "m-1"
