"""AddOffsetsToTxn (25): a transaction is going to commit offsets for a group.

0  the first
1  a throttled client waits by itself
2  PRODUCER_FENCED may be answered
3  flexible
4  TRANSACTION_ABORTABLE may be answered
"""

from __future__ import annotations

from protocol.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, key=25, versions="0-4", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()


def refused(request: AddOffsetsToTxnRequest, code: int) -> AddOffsetsToTxnResponse:
    """An answer of an error and nothing else."""
    return AddOffsetsToTxnResponse(error_code=code)
