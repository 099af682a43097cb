"""An administrator's changes to a group without members: `... BOOTSTRAP TOPIC GROUP`.

In kafka-python from 1.4.7 to 3; what a release lacks is left out.
"""

from __future__ import annotations

import sys

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient


def main(bootstrap: str, topic: str, group: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    newest = hasattr(admin, "list_groups")
    if newest:
        admin.list_groups()
        admin.describe_groups([group])
        admin.list_group_offsets(group)
        admin.delete_group_offsets(group, [TopicPartition(topic, 0)])
        admin.delete_groups([group])
    else:
        admin.list_consumer_groups()
        admin.describe_consumer_groups([group])
        admin.list_consumer_group_offsets(group)
        if hasattr(admin, "delete_consumer_groups"):
            admin.delete_consumer_groups([group])
    admin.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
