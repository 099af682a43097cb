"""One instance of a transactional producer in a process of its own, which can be paused.

Lines in: `open`, or a name under which a transaction is begun, written and committed. A line out
for each: `opened`, `committed`, or `refused` and why, after which it has to be opened again.
"""

from __future__ import annotations

import os
import sys
import time

import confluent_kafka

#: Records of a transaction, written by and by, so that a pause comes in the midst of them.
RECORDS = 10
REST_S = 0.004
PATIENCE_S = 60


def main(bootstrap: str, topic: str, transactional_id: str) -> None:
    producer: confluent_kafka.Producer | None = None
    kept: list[confluent_kafka.Producer] = []  # librdkafka 2.16 may crash when one is let go
    for line in sys.stdin:
        name = line.strip()
        try:
            if name == "open":
                producer = opened(bootstrap, transactional_id)
                kept.append(producer)
                answer = "opened"
            else:
                assert producer is not None
                write(producer, topic, name)
                answer = "committed"
        except confluent_kafka.KafkaException as error:
            answer = f"refused {error.args[0].name()}"
            producer = None
        except SystemError as error:
            # A fatal error that librdkafka's binding raises in the midst of another callback.
            answer = f"refused {error.__cause__}"
            producer = None
        print(answer, flush=True)
    os._exit(0)


def opened(bootstrap: str, transactional_id: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def write(producer: confluent_kafka.Producer, topic: str, name: str) -> None:
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(topic, f"{name} {number}".encode(), partition=number % 2)
        producer.poll(0)
        time.sleep(REST_S)
    producer.commit_transaction(PATIENCE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
