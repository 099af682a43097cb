"""DescribeLogDirs (35): the directories of a broker, and what each partition takes there.

0  the first
1  a throttled client waits by itself
2  flexible
3  an error for the whole request
4  the size of the disk and what is free
5  directories that take no new partitions
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string


class DescribeLogDirsRequest(Message, key=35, versions="0-5", flexible="2+"):
    class Topic(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    # Null is all.
    topics: list[Topic] | None = array(Topic, nullable="")


class DescribeLogDirsResponse(Message, key=35, versions="0-5", flexible="2+"):
    class Result(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int = int32()
                partition_size: int = int64()
                # How far the log is behind the high watermark, or a future replica behind the
                # present one.
                offset_lag: int = int64()
                is_future_key: bool = boolean()
                # Ours: what retention holds back for groups (retention.wait.groups), left out if
                # that is nothing. Records, bytes of their batches, since when (ms since 1970), and
                # the groups. No other broker sends it.
                held_records: int = int64("2+", tag=10000, default=0)
                held_bytes: int = int64("2+", tag=10001, default=0)
                held_since_ms: int = int64("2+", tag=10002, default=-1)
                held_for: list[str] = array(string, "2+", tag=10003, default=())

            name: str = string()
            partitions: list[Partition] = array(Partition)

        error_code: int = int16()
        log_dir: str = string()
        topics: list[Topic] = array(Topic)
        # -1 is unknown.
        total_bytes: int = int64("4+", default=-1)
        usable_bytes: int = int64("4+", default=-1)
        is_cordoned: bool = boolean("5+", default=False)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("3+", default=0)
    results: list[Result] = array(Result)


def refused(request: DescribeLogDirsRequest, code: int) -> DescribeLogDirsResponse:
    """An answer of an error and nothing else; before version 3 an empty one."""
    return DescribeLogDirsResponse(error_code=code, results=[])
