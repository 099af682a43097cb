"""AlterReplicaLogDirs: replicas can only move to where they are, the one data directory.

The path is compared as it is written, as by Kafka: it must be the one that DescribeLogDirs tells.
A replica that is named for several directories goes to the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

Answered = AlterReplicaLogDirsResponse.Topic


def alter_replica_log_dirs(request: Request, ctx: Context) -> AlterReplicaLogDirsResponse:
    message: AlterReplicaLogDirsRequest = request.message
    destinations: dict[str, dict[int, str]] = {}
    for directory in message.dirs:
        for asked in directory.topics:
            by_index = destinations.setdefault(asked.name, {})
            by_index.update(dict.fromkeys(asked.partitions, directory.path))
    return AlterReplicaLogDirsResponse(
        results=[
            Answered(
                topic_name=name,
                partitions=[
                    Answered.Partition(
                        partition_index=index, error_code=_code(name, index, path, ctx)
                    )
                    for index, path in by_index.items()
                ],
            )
            for name, by_index in destinations.items()
        ]
    )


def _code(name: str, index: int, path: str, ctx: Context) -> ErrorCode:
    if path != ctx.directory.path:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if ctx.topics.partition(name, index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
