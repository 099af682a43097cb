"""Whether the broker serves everybody now."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.metrics.families import Sources


def unready(sources: Sources) -> list[str]:
    """Why it does not; nothing where it does."""
    reasons = []
    if sources.groups.is_loading:
        reasons.append("groups are being loaded")
    if sources.disk.full:
        reasons.append("the disk is full: records are refused")
    failed = [log.name for log in sources.directory.logs.values() if log.failed is not None]
    if failed:
        reasons.append(
            f"{len(failed)} logs take no records until a restart: {', '.join(failed[:5])}"
        )
    if sources.descriptors.short:
        reasons.append("no file descriptor is left: new connections wait")
    return reasons
