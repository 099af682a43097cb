"""A driver of Spark that writes in transactions, to be killed and started again.

python -m tests.pipeline.transactional_driver stream SERVERS SOURCE SINK STATE
python -m tests.pipeline.transactional_driver replay SERVERS FOLDER RENAME

A task may be tried again. The stream's first run loses one: the worker that makes the rows is
killed at the record of value KILLED_AT, once, for which a file in STATE stands.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

KILLED_AT = b"777"
PREFIX = "killed"
CONF = {"spark.master": "local[2,4]"}
OFFSETS_PER_TRIGGER = 400


def main(words: list[str]) -> None:
    from pipeline.session import session

    with session(conf=CONF) as spark:
        if words[0] == "replay":
            from pipeline.jobs.replay import replay

            _, servers, folder, rename = words
            print(replay(folder, servers, rename=rename, transactional_id=PREFIX, spark=spark))
            return
        _, servers, source, sink, state = words
        from pyspark.sql.functions import udf

        flag = Path(state) / "killed-once"

        def value(read: bytes) -> bytes:
            if read == KILLED_AT and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return bytes(read)

        rows = (
            spark.readStream.format("triglot")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(OFFSETS_PER_TRIGGER))
            .load()
            .select(udf(value, "binary", useArrow=False)("value").alias("value"), "partition")
        )
        query = (
            rows.writeStream.format("triglot")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", sink)
            .option("transactionalId", PREFIX)
            .option("checkpointLocation", f"{state}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
