"""Writes a numbered record with a key and headers to the topic `demo`, every so often.

    BOOTSTRAP  the broker's host:port     (127.0.0.1:9092)
    EVERY_MS   pause between two records  (1000)
    COUNT      records before it ends     (no end)

It waits for the broker to come up, so that it may be started first.
"""

import itertools
import os
import time

from kafka import KafkaProducer

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")
EVERY_MS = int(os.environ.get("EVERY_MS", "1000"))
COUNT = int(os.environ["COUNT"]) if "COUNT" in os.environ else None

WAIT_FOR_BROKER_MS = 120_000
KEYS = (b"red", b"green", b"blue")


def main() -> None:
    with KafkaProducer(
        bootstrap_servers=BOOTSTRAP, bootstrap_timeout_ms=WAIT_FOR_BROKER_MS, acks="all"
    ) as producer:
        for number in itertools.count() if COUNT is None else range(COUNT):
            sent = producer.send(
                "demo",
                key=KEYS[number % len(KEYS)],
                value=f"record {number}".encode(),
                headers=[("number", str(number).encode()), ("from", b"producer.py")],
            )
            # With acks=all the answer comes when the record is on the broker's disk.
            where = sent.get(timeout=30)
            print(f"wrote record {number} to offset {where.offset}", flush=True)
            time.sleep(EVERY_MS / 1000)


if __name__ == "__main__":
    main()
