"""The resources that arguments name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.acls import CLUSTER_NAME, ResourceType

if TYPE_CHECKING:
    import argparse

RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
"""Arguments that name a resource; `--cluster` has no name."""


def resources_of(arguments: argparse.Namespace) -> list[tuple[int, str]]:
    """Types and names of the resources that are named."""
    found: list[tuple[int, str]] = []
    for attribute, resource_type in RESOURCES.items():
        given = getattr(arguments, attribute)
        names = given if isinstance(given, list) else [] if given is None else [given]
        found += [(resource_type, name) for name in names]
    return [*found, (ResourceType.CLUSTER, CLUSTER_NAME)] if arguments.cluster else found
