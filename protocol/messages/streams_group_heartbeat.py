"""StreamsGroupHeartbeat (88): a member of a Kafka Streams group joins, lives and leaves
(KIP-1071).

0  the first
1  the recovery lag is an int64; the answer may ask for the topology's description
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


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupHeartbeatRequest(Message, key=88, versions="0-1", flexible="0+"):
    class Topology(Struct):
        class Subtopology(Struct):
            class TopicInfo(Struct):
                name: str = string()
                partitions: int = int32()
                replication_factor: int = int16()
                topic_configs: list[KeyValue] = array(KeyValue)

            class CopartitionGroup(Struct):
                # Places in the lists of the subtopology, not names.
                source_topics: list[int] = array(int16)
                source_topic_regex: list[int] = array(int16)
                repartition_source_topics: list[int] = array(int16)

            subtopology_id: str = string()
            source_topics: list[str] = array(string)
            source_topic_regex: list[str] = array(string)
            state_changelog_topics: list[TopicInfo] = array(TopicInfo)
            repartition_sink_topics: list[str] = array(string)
            repartition_source_topics: list[TopicInfo] = array(TopicInfo)
            copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)

        epoch: int = int32()
        subtopologies: list[Subtopology] = array(Subtopology)

    class TaskIds(Struct):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)

    class Endpoint(Struct):
        host: str = string()
        port: int = uint16()

    class TaskOffset(Struct):
        subtopology_id: str = string()
        partition: int = int32()
        offset: int = int64()

    group_id: str = string()
    member_id: str = string()
    # 0 to join, -1 to leave, -2 for a static member that leaves for a while.
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    # Null, or -1 for the time, means from here on: as said before.
    instance_id: str | None = string(nullable="", default=None)
    rack_id: str | None = string(nullable="", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = struct(Topology, nullable="", default=None)
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="", default=None)
    process_id: str | None = string(nullable="", default=None)
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="", default=None)
    client_tags: list[KeyValue] | None = array(KeyValue, nullable="", default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="", default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="", default=None)
    shutdown_application: bool = boolean(default=False)


class StreamsGroupHeartbeatResponse(Message, key=88, versions="0-1", flexible="0+"):
    class Status(Struct):
        status_code: int = int8()
        status_detail: str = string()

    class TaskIds(Struct):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)

    class EndpointToPartitions(Struct):
        class Endpoint(Struct):
            host: str = string()
            port: int = uint16()

        class TopicPartition(Struct):
            topic: str = string()
            partitions: list[int] = array(int32)

        user_endpoint: Endpoint = struct(Endpoint)
        active_partitions: list[TopicPartition] = array(TopicPartition)
        standby_partitions: list[TopicPartition] = array(TopicPartition)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag_legacy: int = int32("0", default=0)
    task_offset_interval_ms: int = int32()
    acceptable_recovery_lag: int = int64("1+", default=-1)
    status: list[Status] | None = array(Status, nullable="")
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="", default=None)
    topology_description_required: bool = boolean("1+", default=False)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, nullable="", default=None
    )


def refused(request: StreamsGroupHeartbeatRequest, code: int) -> StreamsGroupHeartbeatResponse:
    """An answer of an error and nothing else."""
    return StreamsGroupHeartbeatResponse(
        error_code=code,
        member_id=request.member_id,
        member_epoch=0,
        heartbeat_interval_ms=0,
        task_offset_interval_ms=0,
        status=None,
        endpoint_information_epoch=0,
    )
