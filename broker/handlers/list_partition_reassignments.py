"""ListPartitionReassignments: the moves that are going on.

There are none on a single node, but for those that a directory of a larger cluster came with, until
they are ended (AlterPartitionReassignments).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.handlers.context import Context
    from protocol.connection import Request
    from storage.metadata.image import TopicState

TopicResult = ListPartitionReassignmentsResponse.Topic


def list_partition_reassignments(
    request: Request, ctx: Context
) -> ListPartitionReassignmentsResponse:
    message: ListPartitionReassignmentsRequest = request.message
    topics = ctx.controller.image.topics
    found = []
    if message.topics is None:
        found = [_moving(topic, topic.partitions, ctx) for topic in topics.values()]
    else:
        found = [
            _moving(topics[asked.name], asked.partition_indexes, ctx)
            for asked in message.topics
            if asked.name in topics
        ]
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE, topics=[entry for entry in found if entry.partitions]
    )


def _moving(topic: TopicState, numbers: Iterable[int], ctx: Context) -> TopicResult:
    partitions = []
    pending = {} if ctx.moves is None else ctx.moves.pending
    for number in numbers:
        state, process = topic.partitions.get(number), pending.get((topic.topic_id, number))
        if state is not None and process is not None:
            old, new = ctx.node_id + state.process, ctx.node_id + process
            partitions.append(
                TopicResult.Partition(
                    partition_index=number,
                    replicas=[old, new],
                    adding_replicas=[new],
                    removing_replicas=[old],
                )
            )
        elif state is not None and (state.adding or state.removing):
            partitions.append(
                TopicResult.Partition(
                    partition_index=number,
                    replicas=list(state.replicas),
                    adding_replicas=list(state.adding),
                    removing_replicas=list(state.removing),
                )
            )
    return TopicResult(name=topic.name, partitions=partitions)
