"""The checks of new records against the metadata log, before they are written.

A record that is in the log and contradicts it would stop every start from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from storage.metadata.image import MetadataImage, TopicState
from storage.steps import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from protocol.logdata.metadata import MetadataRecord
    from storage.steps import Steps


def require_sense(image: MetadataImage, records: Sequence[MetadataRecord]) -> Steps[None]:
    """Raises MetadataError if replaying these records into the image would. Changes nothing.

    They are replayed into as much of the image as they are about, in steps without a job."""
    trial = MetadataImage()
    trial.scram_credentials = image.scram_credentials.copy()
    trial.acls = image.acls.copy()
    trial.brokers = image.brokers.copy()
    if image.transaction is not None:
        trial.transaction = image.transaction.copy()
    for topic in _topics_of(image, (*(image.transaction or ()), *records)):
        copied = TopicState(topic.name, topic.topic_id, topic.partitions.copy())
        trial.topics[topic.name] = trial.topics_by_id[topic.topic_id] = copied
    for number, record in enumerate(records, 1):
        trial.replay(record)
        if number % AT_ONCE == 0:
            yield None


def _topics_of(image: MetadataImage, records: Iterable[MetadataRecord]) -> Iterator[TopicState]:
    """The topics of the image that these records are about, each once."""
    ids: dict[bytes, None] = {}
    for record in records:
        if isinstance(record, PartitionChangeRecord | PartitionRecord | RemoveTopicRecord):
            ids[record.topic_id] = None
        elif isinstance(record, TopicRecord):
            ids[record.topic_id] = None
            if record.name in image.topics:
                ids[image.topics[record.name].topic_id] = None
        elif isinstance(record, ClearElrRecord) and record.topic_name in image.topics:
            ids[image.topics[record.topic_name].topic_id] = None
    for topic_id in ids:
        topic = image.topics_by_id.get(topic_id)
        if topic is not None:
            yield topic
