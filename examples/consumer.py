"""Prints every record of the topic `demo` from its first, and then those that come.

    BOOTSTRAP  the broker's host:port   (127.0.0.1:9092)
    COUNT      records before it ends   (no end)

It waits for the broker to come up, so that it may be started first.
"""

import itertools
import os

from kafka import KafkaConsumer

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")
COUNT = int(os.environ["COUNT"]) if "COUNT" in os.environ else None

WAIT_FOR_BROKER_MS = 120_000


def main() -> None:
    consumer = KafkaConsumer(
        "demo",
        bootstrap_servers=BOOTSTRAP,
        bootstrap_timeout_ms=WAIT_FOR_BROKER_MS,
        auto_offset_reset="earliest",
    )
    for record in itertools.islice(consumer, COUNT):
        headers = " ".join(f"{name}={value.decode()}" for name, value in record.headers)
        key = record.key.decode()
        print(f"{record.offset}: {key} -> {record.value.decode()} ({headers})", flush=True)
    consumer.close()


if __name__ == "__main__":
    main()
