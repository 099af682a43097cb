"""Metadata (3): brokers, topics and partitions; may create the topics that are named.

0   no topics named means all; names that do not exist may be created
1   null topics means all, none means none; controller, racks, internal topics
2   cluster id
3   throttle time
4   the client says whether missing topics may be created
5   offline replicas
6   a throttled client waits by itself
7   leader epochs, which make a client check them
8   the operations the caller may do, if asked for
9   flexible
10  topic ids in the answer; a request may not use them yet
11  the operations on the cluster move to DescribeCluster
12  a topic may be asked for by id
13  an error for the whole request
"""

from __future__ import annotations

from protocol.schema import ZERO_UUID, Message, Struct, array, boolean, int16, int32, string, uuid


class MetadataRequest(Message, key=3, versions="0-13", flexible="9+"):
    class Topic(Struct):
        topic_id: bytes = uuid("10+", default=ZERO_UUID)
        name: str | None = string(nullable="10+")

    # Null is all topics; version 0 has no null and means all by an empty list.
    topics: list[Topic] | None = array(Topic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10", default=False)
    include_topic_authorized_operations: bool = boolean("8+", default=False)


class MetadataResponse(Message, key=3, versions="0-13", flexible="9+"):
    class Broker(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string("1+", nullable="1+", default=None)

    class Topic(Struct):
        class Partition(Struct):
            error_code: int = int16()
            partition_index: int = int32()
            leader_id: int = int32()
            leader_epoch: int = int32("7+", default=-1)
            replica_nodes: list[int] = array(int32)
            isr_nodes: list[int] = array(int32)
            offline_replicas: list[int] = array(int32, "5+", default=())

        error_code: int = int16()
        name: str | None = string(nullable="12+")
        topic_id: bytes = uuid("10+", default=ZERO_UUID)
        is_internal: bool = boolean("1+", default=False)
        partitions: list[Partition] = array(Partition)
        topic_authorized_operations: int = int32("8+", default=-2147483648)

    throttle_time_ms: int = int32("3+", default=0)
    brokers: list[Broker] = array(Broker)
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[Topic] = array(Topic)
    # A field of bits; the default says that it was not asked for.
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+", default=0)


def refused(request: MetadataRequest, code: int) -> MetadataResponse:
    """The answer in which the request and every topic named in it meet the same error.

    Before version 13 a request for all topics has no place for an error.
    """
    return MetadataResponse(
        error_code=code,
        brokers=[],
        topics=[
            MetadataResponse.Topic(
                error_code=code, name=asked.name or "", topic_id=asked.topic_id, partitions=[]
            )
            for asked in request.topics or ()
        ],
    )
