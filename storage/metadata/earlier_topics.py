"""`triglot-topics.json`: how triglot kept its topics before there was a metadata log.

It is read once, when a directory that has it is opened: what it says becomes records of the log,
and the file gets another name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata import (
    ConfigRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from storage.errors import DataDirectoryError
from storage.identity import uuid_of
from storage.layout import EARLIER_TOPICS
from storage.metadata.contradictions import require_sense
from storage.metadata.image import (
    TOPIC_RESOURCE,
    MetadataImage,
    PartitionState,
    partition_record,
)

if TYPE_CHECKING:
    from protocol.logdata.metadata import MetadataRecord
    from storage.filesystem import Filesystem

FILE_VERSION = 1
MIGRATED = ".migrated"


def read_earlier_topics(
    files: Filesystem, path: str, *, node_id: int, directory_id: bytes
) -> list[MetadataRecord] | None:
    """The records that say what the file says; None if there is none. Raises DataDirectoryError."""
    import json

    where = f"{path}/{EARLIER_TOPICS}"
    try:
        data = files.read_bytes(where)
    except FileNotFoundError:
        return None
    records: list[MetadataRecord] = []
    try:
        content = json.loads(data)
        if content["version"] != FILE_VERSION:
            raise ValueError(f"version {content['version']!r}, known is {FILE_VERSION}")
        mine = (node_id,)
        epoch = max(_whole(content["leader_epoch"], "leader_epoch", at_least=-1), 0)
        state = PartitionState(mine, mine, node_id, epoch, 0, (directory_id,))
        for topic in content.get("deleted", []):
            # A start removes their folders.
            records += _topic(topic, state)
            records.append(RemoveTopicRecord(topic_id=uuid_of(topic["topic_id"])))
        for topic in content["topics"]:
            records += _topic(topic, state)
        next_producer_id = _whole(content["next_producer_id"], "next_producer_id")
        require_sense(MetadataImage(), records)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataDirectoryError(
            f"{where}: {error!r}: restore the file; it says which topics there are"
        ) from error
    if next_producer_id:
        records.append(
            ProducerIdsRecord(broker_id=node_id, broker_epoch=-1, next_producer_id=next_producer_id)
        )
    return records


def _topic(topic: dict[str, object], state: PartitionState) -> list[MetadataRecord]:
    name, text, configs = topic["name"], topic["topic_id"], topic["configs"]
    if not isinstance(name, str) or not isinstance(text, str) or not isinstance(configs, dict):
        raise TypeError("name and topic_id are strings, configs is an object")
    for key, value in configs.items():
        if not isinstance(value, str):
            raise TypeError(f"config {key} is {value!r}, not a string")
    topic_id, count = uuid_of(text), _whole(topic["partitions"], "partitions", at_least=1)
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=value)
            for key, value in configs.items()
        ),
        *(partition_record(topic_id, number, state) for number in range(count)),
    ]


def _whole(value: object, field: str, *, at_least: int = 0) -> int:
    if type(value) is not int or value < at_least:
        raise ValueError(f"{field} is {value!r}, wanted a whole number of at least {at_least}")
    return value


def set_aside(files: Filesystem, path: str) -> None:
    """Give the file another name: the log has what it said."""
    where = f"{path}/{EARLIER_TOPICS}"
    files.rename(where, where + MIGRATED)
    files.sync_dir(path)
