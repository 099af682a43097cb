"""The whole of a metadata image, to be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storage.metadata.image import MetadataImage

if TYPE_CHECKING:
    from protocol.logdata.metadata import MetadataRecord

STATE_FIELDS = (
    "topics", "topics_by_id", "removed", "configs", "client_quotas", "scram_credentials", "acls",
    "delegation_tokens", "features", "brokers", "controllers", "zk_migration", "next_producer_id",
    "transaction",
)  # fmt: skip


def state_of(image: MetadataImage, *leave_out: str) -> dict[str, Any]:
    """All of it, to be compared."""
    return {name: getattr(image, name) for name in STATE_FIELDS if name not in leave_out}


def image_of(*records: MetadataRecord) -> MetadataImage:
    image = MetadataImage()
    for record in records:
        image.replay(record)
    return image


def frozen(image: MetadataImage) -> str:
    """A text of all of it."""
    parts = state_of(image)
    for name in ("topics", "topics_by_id", "removed"):
        parts[name] = {key: topic.partitions for key, topic in parts[name].items()}
    return repr(parts)
