"""The two ways in which a batch can be wrong: damaged bytes, or content that is not allowed."""

from __future__ import annotations

from protocol.errors import ErrorCode, KafkaError


class CorruptBatch(KafkaError):
    """The bytes are not an entry of any known format, or its checksum does not fit (code 2).

    Java clients retry on this code, because damage on the way may not happen twice.
    """

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecord(KafkaError):
    """The batch is whole, but what it says is not allowed (code 87 unless another is given).

    `record_errors` names single records at fault as (index inside the batch, text). It is empty
    when the batch as a whole is refused. Only Produce v8 and later can carry it to the client.
    """

    code = ErrorCode.INVALID_RECORD

    def __init__(
        self,
        message: str,
        code: ErrorCode = ErrorCode.INVALID_RECORD,
        record_errors: list[tuple[int, str]] | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.record_errors: list[tuple[int, str]] = record_errors or []
