"""ListTransactions (66): the transactions there are.

0  by state and by producer
1  by how long they have been open
2  by a pattern that the transactional id matches
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Message, key=66, versions="0-2", flexible="0+"):
    # Empty is any.
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    # Milliseconds; below 0 is any.
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class ListTransactionsResponse(Message, key=66, versions="0-2", flexible="0+"):
    class TransactionState(Struct):
        transactional_id: str = string()
        producer_id: int = int64()
        transaction_state: str = string()

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)


def refused(request: ListTransactionsRequest, code: int) -> ListTransactionsResponse:
    """An answer of an error and no transactions."""
    return ListTransactionsResponse(
        error_code=code, unknown_state_filters=[], transaction_states=[]
    )
