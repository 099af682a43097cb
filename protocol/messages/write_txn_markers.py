"""WriteTxnMarkers (27): the ends of transactions are written to partitions. Asked by
coordinators, and by the tool that aborts a transaction nobody ends.

0  the first
1  flexible
2  the markers say which rules their transaction follows (KIP-1228)
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, int8, int16, int32, int64, string


class WriteTxnMarkersRequest(Message, key=27, versions="0-2", flexible="1+"):
    class Marker(Struct):
        class Topic(Struct):
            name: str = string()
            partition_indexes: list[int] = array(int32)

        producer_id: int = int64()
        producer_epoch: int = int16()
        # True to commit, false to abort.
        transaction_result: bool = boolean()
        topics: list[Topic] = array(Topic)
        coordinator_epoch: int = int32()
        transaction_version: int = int8("2+", default=0)

    markers: list[Marker] = array(Marker)


class WriteTxnMarkersResponse(Message, key=27, versions="0-2", flexible="1+"):
    class Marker(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int = int32()
                error_code: int = int16()

            name: str = string()
            partitions: list[Partition] = array(Partition)

        producer_id: int = int64()
        topics: list[Topic] = array(Topic)

    markers: list[Marker] = array(Marker)


def refused(request: WriteTxnMarkersRequest, code: int) -> WriteTxnMarkersResponse:
    """The answer in which every partition named meets the same error."""
    marker = WriteTxnMarkersResponse.Marker
    return WriteTxnMarkersResponse(
        markers=[
            marker(
                producer_id=asked.producer_id,
                topics=[
                    marker.Topic(
                        name=topic.name,
                        partitions=[
                            marker.Topic.Partition(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in asked.topics
                ],
            )
            for asked in request.markers
        ]
    )
