"""What is in a broker, as the control port lists it: topics, groups, connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.classic.group import ClassicGroup
from broker.faults.events import EventRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.coordinator.classic.answers import MemberDescription
    from broker.coordinator.consumer.members import MemberFacts
    from broker.coordinator.group_coordinator import GroupCoordinator
    from broker.coordinator.runtime import Group
    from broker.network.connections import Connections
    from broker.partitions.topics import Topics


class Listings:
    """Reads the parts that know. Belongs to the loop."""

    def __init__(self, topics: Topics, groups: GroupCoordinator, connections: Connections) -> None:
        self._topics = topics
        self._groups = groups
        self._connections = connections

    def topics(self) -> list[dict[str, Any]]:
        """All topics but the internal ones, by name."""
        names = sorted(topic.name for topic in self._topics if not topic.internal)
        return [self.topic(name) for name in names]

    def topic(self, name: str) -> dict[str, Any]:
        """Each partition of a topic: epoch, start and end. Raises EventRefused."""
        topic = self._topics.by_name.get(name)
        if topic is None:
            raise EventRefused(f"there is no topic '{name}'")
        partitions = [
            {
                "partition": number,
                "leader_epoch": partition.log.leader_epoch,
                "start_offset": partition.log.start_offset,
                "end_offset": partition.log.written_offset,
                "last_stable_offset": partition.last_stable_offset,
            }
            for number, partition in enumerate(topic.partitions)
        ]
        return {"topic": name, "partitions": partitions}

    def groups(self) -> list[dict[str, Any]]:
        """All groups that have members, or have had some and are remembered, by id."""
        known = {
            group.group_id: group
            for shard in self._groups.loaded_shards()
            for group in shard.state.groups.values()
        }
        return [_group(known[group_id]) for group_id in sorted(known)]

    def connections(self) -> list[dict[str, str]]:
        """All open connections of clients, each with the client id of its last request."""
        return [
            {
                "client": one.context.client_id or "",
                "address": f"{one.context.peer_host}:{one.context.peer_port}",
                "listener": one.listener,
            }
            for one in self._connections
        ]


def _group(group: Group) -> dict[str, Any]:
    is_classic = isinstance(group, ClassicGroup)
    return {
        "group": group.group_id,
        "type": "classic" if is_classic else "consumer",
        "state": group.state.value if isinstance(group, ClassicGroup) else group.state,
        "members": list(_members(group)),
    }


def _members(group: Group) -> Iterator[dict[str, str | None]]:
    if isinstance(group, ClassicGroup):
        for one in group.describe().members:
            yield _member(one.member_id, one)
    else:
        for member in group.members.values():
            yield _member(member.member_id, member.facts)


def _member(member_id: str, said: MemberDescription | MemberFacts) -> dict[str, str | None]:
    return {
        "member": member_id,
        "instance": said.instance_id,
        "client": said.client_id,
        "host": said.client_host.removeprefix("/"),
    }
