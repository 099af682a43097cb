"""Topics with records in zstd, and what each version of Fetch brings of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.cluster import Cluster, TopicPartition
from protocol.records.builder import batch_of_rows
from protocol.records.compression import NAMES, ZSTD
from protocol.records.layout import ATTRIBUTES_POSITION, CODEC_MASK, MESSAGE_ATTRIBUTES_POSITION
from protocol.records.walk import walk

if TYPE_CHECKING:
    from tests.support.caller import Caller

GIVEN, CONFIGURED, BEHIND = "zstd-given", "zstd-configured", "zstd-behind"
TOPICS = {GIVEN: {}, CONFIGURED: {"compression.type": "zstd"}, BEHIND: {}}
ROWS = [(1, None, b"y" * 100, ())] * 3


def fill(bootstrap: str, client_id: bytes = b"filler") -> None:
    """Make the topics: zstd as its producer gave it, as the topic has it, and behind a batch of no
    codec."""
    with Cluster(bootstrap, client_id=client_id) as client:
        for name, configs in TOPICS.items():
            client.create_topic(name, 1, configs)
            codecs = (0, ZSTD) if name == BEHIND else (ZSTD,)
            for codec in codecs:
                client.produce(TopicPartition(name, 0), [batch_of_rows(ROWS, codec=codec)])


def met(client: Caller, version: int) -> dict[str, str]:
    """What a fetch meets in each topic: the codecs, or the error."""
    return {name: _met(client, name, version) for name in TOPICS}


def _met(client: Caller, topic: str, version: int) -> str:
    found = client.fetch(topic, version=version)
    if found.error_code:
        return f"error {found.error_code}"
    records = bytes(found.records)
    positions = (MESSAGE_ATTRIBUTES_POSITION, MESSAGE_ATTRIBUTES_POSITION, ATTRIBUTES_POSITION + 1)
    codecs = [records[at + positions[magic]] & CODEC_MASK for at, _, magic in walk(records)]
    return ", ".join(NAMES[codec] for codec in dict.fromkeys(codecs))
