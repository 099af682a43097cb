"""FindCoordinator (10): which broker looks after a group or a transaction.

0  groups only
1  transactions too; an error message; throttle time
2  a throttled client waits by itself
3  flexible
4  several keys at once, each with its own answer
5  TRANSACTION_ABORTABLE may be answered
6  share groups, the key being group:topic id:partition
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Message, key=10, versions="0-6", flexible="3+"):
    key: str = string("0-3", default="")
    # 0 group, 1 transaction, 2 share group.
    key_type: int = int8("1+", default=0)
    coordinator_keys: list[str] = array(string, "4+", default=())


class FindCoordinatorResponse(Message, key=10, versions="0-6", flexible="3+"):
    class Coordinator(Struct):
        key: str = string()
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = string("1-3", nullable="1-3", default=None)
    node_id: int = int32("0-3", default=0)
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: list[Coordinator] = array(Coordinator, "4+", default=())


def refused(request: FindCoordinatorRequest, code: int) -> FindCoordinatorResponse:
    """The answer in which every key asked for meets the same error, and no broker is named."""
    return FindCoordinatorResponse(
        error_code=code,
        node_id=-1,
        port=-1,
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code
            )
            for key in request.coordinator_keys
        ],
    )
