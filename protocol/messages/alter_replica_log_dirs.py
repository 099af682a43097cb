"""AlterReplicaLogDirs (34): replicas move to another directory of the same broker.

0  the first
1  a throttled client waits by itself
2  flexible
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, string


class AlterReplicaLogDirsRequest(Message, key=34, versions="0-2", flexible="2+"):
    class Dir(Struct):
        class Topic(Struct):
            name: str = string()
            partitions: list[int] = array(int32)

        path: str = string()
        topics: list[Topic] = array(Topic)

    dirs: list[Dir] = array(Dir)


class AlterReplicaLogDirsResponse(Message, key=34, versions="0-2", flexible="2+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16()

        topic_name: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    results: list[Topic] = array(Topic)


def refused(request: AlterReplicaLogDirsRequest, code: int) -> AlterReplicaLogDirsResponse:
    """The answer in which every partition named meets the same error."""
    topic = AlterReplicaLogDirsResponse.Topic
    return AlterReplicaLogDirsResponse(
        results=[
            topic(
                topic_name=asked.name,
                partitions=[
                    topic.Partition(partition_index=index, error_code=code)
                    for index in asked.partitions
                ],
            )
            for directory in request.dirs
            for asked in directory.topics
        ]
    )
