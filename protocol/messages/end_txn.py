"""EndTxn (26): a transaction is committed or aborted.

0  the first
1  a throttled client waits by itself
2  PRODUCER_FENCED may be answered
3  flexible
4  TRANSACTION_ABORTABLE may be answered
5  the epoch grows with each transaction, and the answer tells it (KIP-890)
"""

from __future__ import annotations

from protocol.schema import Message, boolean, int16, int32, int64, string


class EndTxnRequest(Message, key=26, versions="0-5", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    # True to commit, false to abort.
    committed: bool = boolean()


class EndTxnResponse(Message, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)


def refused(request: EndTxnRequest, code: int) -> EndTxnResponse:
    """An answer of an error and nothing else."""
    return EndTxnResponse(error_code=code)
