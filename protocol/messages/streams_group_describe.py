"""StreamsGroupDescribe (89): Kafka Streams groups and the tasks of their members (KIP-1071).

0  the first
1  the assignor, and the topology's description if asked for
"""

from __future__ import annotations

from protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)


class StreamsGroupDescribeRequest(Message, key=89, versions="0-1", flexible="0+"):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()
    include_topology_description: bool = boolean("1+", default=False)


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class TopologyNode(Struct):
    name: str = string()
    # 1 source, 2 processor, 3 sink.
    node_type: int = int8()
    source_topics: list[str] = array(string)
    sink_topic: str | None = string(nullable="", default=None)
    stores: list[str] = array(string)
    successors: list[str] = array(string)


class StreamsGroupDescribeResponse(Message, key=89, versions="0-1", flexible="0+"):
    class Group(Struct):
        class Topology(Struct):
            class Subtopology(Struct):
                class TopicInfo(Struct):
                    name: str = string()
                    partitions: int = int32()
                    replication_factor: int = int16()
                    topic_configs: list[KeyValue] = array(KeyValue)

                subtopology_id: str = string()
                source_topics: list[str] = array(string)
                repartition_sink_topics: list[str] = array(string)
                state_changelog_topics: list[TopicInfo] = array(TopicInfo)
                repartition_source_topics: list[TopicInfo] = array(TopicInfo)

            epoch: int = int32()
            subtopologies: list[Subtopology] | None = array(Subtopology, nullable="", default=None)

        class Member(Struct):
            class Endpoint(Struct):
                host: str = string()
                port: int = uint16()

            class TaskOffset(Struct):
                subtopology_id: str = string()
                partition: int = int32()
                offset: int = int64()

            class Assignment(Struct):
                class TaskIds(Struct):
                    subtopology_id: str = string()
                    partitions: list[int] = array(int32)

                active_tasks: list[TaskIds] = array(TaskIds)
                standby_tasks: list[TaskIds] = array(TaskIds)
                warmup_tasks: list[TaskIds] = array(TaskIds)

            member_id: str = string()
            member_epoch: int = int32()
            instance_id: str | None = string(nullable="", default=None)
            rack_id: str | None = string(nullable="", default=None)
            client_id: str = string()
            client_host: str = string()
            topology_epoch: int = int32()
            process_id: str = string()
            user_endpoint: Endpoint | None = struct(Endpoint, nullable="", default=None)
            client_tags: list[KeyValue] = array(KeyValue)
            task_offsets: list[TaskOffset] = array(TaskOffset)
            task_end_offsets: list[TaskOffset] = array(TaskOffset)
            assignment: Assignment = struct(Assignment)
            target_assignment: Assignment = struct(Assignment)
            is_classic: bool = boolean()

        class TopologyDescription(Struct):
            class Subtopology(Struct):
                subtopology_id: str = string()
                nodes: list[TopologyNode] = array(TopologyNode)

            class GlobalStore(Struct):
                source: TopologyNode = struct(TopologyNode)
                processor: TopologyNode = struct(TopologyNode)

            subtopologies: list[Subtopology] = array(Subtopology)
            global_stores: list[GlobalStore] = array(GlobalStore)

        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        topology: Topology | None = struct(Topology, nullable="", default=None)
        members: list[Member] = array(Member)
        authorized_operations: int = int32(default=-2147483648)
        topology_description: TopologyDescription | None = struct(
            TopologyDescription, "1+", nullable="1+", default=None
        )
        # 0 not asked for, 1 not known, 2 failed, 3 given.
        topology_description_status: int = int8("1+", default=0)
        assignor_name: str | None = string("1+", nullable="1+", default=None)

    throttle_time_ms: int = int32(default=0)
    groups: list[Group] = array(Group)


def refused(request: StreamsGroupDescribeRequest, code: int) -> StreamsGroupDescribeResponse:
    """The answer in which every group asked for meets the same error."""
    return StreamsGroupDescribeResponse(
        groups=[
            StreamsGroupDescribeResponse.Group(
                error_code=code,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                members=[],
            )
            for group_id in request.group_ids
        ]
    )
