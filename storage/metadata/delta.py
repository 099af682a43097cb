"""What records of the metadata log touch, for those who keep something that is made of it.

A delta says where to look, and the image what is there: so it does not matter whether a topic was
made, grew or went, nor how often it is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata import (
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.logdata.metadata import MetadataRecord
    from storage.metadata.image import MetadataImage

_OF_TOPICS = (TopicRecord, PartitionRecord, PartitionChangeRecord, RemoveTopicRecord)
_OF_TOKENS = (DelegationTokenRecord, RemoveDelegationTokenRecord)


class Delta:
    """The topics and delegation tokens by their ids, the resources of settings by type and name,
    and whether quotas."""

    __slots__ = ("client_quotas", "configs", "delegation_tokens", "topics")

    def __init__(self, *operations: Sequence[MetadataRecord]) -> None:
        self.topics: dict[bytes, None] = {}
        """In the order in which they were touched first."""
        self.configs: dict[tuple[int, str], None] = {}
        self.delegation_tokens: dict[str, None] = {}
        self.client_quotas = False
        for records in operations:
            for record in records:
                if isinstance(record, _OF_TOPICS):
                    self.topics[record.topic_id] = None
                elif isinstance(record, ConfigRecord):
                    self.configs[record.resource_type, record.resource_name] = None
                elif isinstance(record, ClientQuotaRecord):
                    self.client_quotas = True
                elif isinstance(record, _OF_TOKENS):
                    self.delegation_tokens[record.token_id] = None


def difference(before: MetadataImage, after: MetadataImage) -> Delta:
    """What is to be looked at where another state takes the place of one as a whole."""
    delta = Delta()
    for topic_id in {**before.topics_by_id, **after.topics_by_id}:
        if before.topics_by_id.get(topic_id) != after.topics_by_id.get(topic_id):
            delta.topics[topic_id] = None
    for resource in {**before.configs, **after.configs}:
        if before.configs.get(resource) != after.configs.get(resource):
            delta.configs[resource] = None
    for token_id, token in before.delegation_tokens.items():
        if after.delegation_tokens.get(token_id) != token:
            delta.delegation_tokens[token_id] = None
    delta.client_quotas = before.client_quotas != after.client_quotas
    return delta
