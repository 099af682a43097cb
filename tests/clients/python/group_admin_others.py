"""An administrator's changes to a group without members: `... LIBRARY BOOTSTRAP TOPIC GROUP`.

In confluent-kafka and in aiokafka.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

TIMEOUT_S = 20.0


def confluent(bootstrap: str, topic: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 1)])
    asked: list[Any] = [
        admin.list_consumer_groups(),
        *admin.describe_consumer_groups([group]).values(),
        *admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values(),
        *admin.alter_consumer_group_offsets([moved]).values(),
    ]
    for future in asked:
        future.result(TIMEOUT_S)
    for future in admin.delete_consumer_groups([group]).values():
        future.result(TIMEOUT_S)


async def aio(bootstrap: str, topic: str, group: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.list_consumer_groups()
    await admin.describe_consumer_groups([group])
    await admin.list_consumer_group_offsets(group)
    await admin.close()


if __name__ == "__main__":
    library, *words = sys.argv[1:]
    if library == "aiokafka":
        asyncio.run(aio(*words))
    else:
        confluent(*words)
