"""What `_single.c` has."""

def read_request(
    buffer: bytearray, start: int, end: int, max_frame_bytes: int
) -> tuple[int, int, int, bytes, int, bytes, int, int, int, str | None] | None:
    """The Produce request of one batch to one partition (v3 to v13) whose frame begins at `start`,
    of bytes that were received up to `end`: end of the frame, key << 16 | version, correlation id,
    client id, acks, topic (UTF-8 name or id), index, start and end of the records, transactional
    id. None for a frame that is not whole, too large, or of another shape."""

def write_answer(
    out: bytearray,
    version: int,
    correlation_id: int,
    topic: bytes,
    index: int,
    error_code: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> None:
    """Append the whole answer to such a request, its length first. Raises ValueError for a version
    or a topic that has none of this shape."""
