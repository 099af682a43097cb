"""What records of the metadata log touch, for those who keep something that is made of it.

A delta says where to look, and the image what is there: so it does not matter whether a topic was
made, grew or went, nor how often it is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata import (
    ClientQuotaRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.logdata.metadata import MetadataRecord
    from storage.metadata.image import MetadataImage

_OF_TOPICS = (TopicRecord, PartitionRecord, PartitionChangeRecord, RemoveTopicRecord)


class Delta:
    """The topics by their ids, the resources of settings by type and name, and whether quotas."""

    __slots__ = ("client_quotas", "configs", "topics")

    def __init__(self, *operations: Sequence[MetadataRecord]) -> None:
        self.topics: dict[bytes, None] = {}
        """In the order in which they were touched first."""
        self.configs: dict[tuple[int, str], None] = {}
        self.client_quotas = False
        for records in operations:
            for record in records:
                if isinstance(record, _OF_TOPICS):
                    self.topics[record.topic_id] = None
                elif isinstance(record, ConfigRecord):
                    self.configs[record.resource_type, record.resource_name] = None
                elif isinstance(record, ClientQuotaRecord):
                    self.client_quotas = True


def difference(before: MetadataImage, after: MetadataImage) -> Delta:
    """What is to be looked at where another state takes the place of one as a whole."""
    delta = Delta()
    for topic_id in {**before.topics_by_id, **after.topics_by_id}:
        if before.topics_by_id.get(topic_id) != after.topics_by_id.get(topic_id):
            delta.topics[topic_id] = None
    for resource in {**before.configs, **after.configs}:
        if before.configs.get(resource) != after.configs.get(resource):
            delta.configs[resource] = None
    delta.client_quotas = before.client_quotas != after.client_quotas
    return delta
