"""Access control entries, by their ids and by the resources that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.acls import PatternType

if TYPE_CHECKING:
    from collections.abc import Collection

    from protocol.logdata.metadata import AccessControlEntryRecord

    Resource = tuple[int, int, str]


class AclTable:
    """`by_id` has all of them. `changes` is another number after every change. Only an image
    changes it."""

    __slots__ = ("_prefixed", "_resources", "by_id", "changes")

    def __init__(self) -> None:
        self.by_id: dict[bytes, AccessControlEntryRecord] = {}
        self.changes = 0
        self._resources: dict[Resource, dict[bytes, AccessControlEntryRecord]] = {}
        self._prefixed: dict[int, dict[int, int]] = {}
        """Of each resource type, how many resources have prefixes of which length."""

    def __eq__(self, other: object) -> bool:
        return self.by_id == other.by_id if isinstance(other, AclTable) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AclTable({self.by_id!r})"

    def copy(self) -> AclTable:
        """The same entries in a table of their own."""
        made = AclTable()
        for record in self.by_id.values():
            made.add(record)
        return made

    def add(self, record: AccessControlEntryRecord) -> None:
        """Add an entry; one of the same id is replaced."""
        if record.id in self.by_id:
            self.remove(record.id)
        self.by_id[record.id] = record
        resource = _resource(record)
        entries = self._resources.get(resource)
        if entries is None:
            entries = self._resources[resource] = {}
            self._count_prefix(record, 1)
        entries[record.id] = record
        self.changes += 1

    def remove(self, acl_id: bytes) -> None:
        """Remove an entry. Raises KeyError if there is none of this id."""
        record = self.by_id.pop(acl_id)
        resource = _resource(record)
        entries = self._resources[resource]
        del entries[acl_id]
        if not entries:
            del self._resources[resource]
            self._count_prefix(record, -1)
        self.changes += 1

    def of(
        self, resource_type: int, pattern_type: int, name: str
    ) -> Collection[AccessControlEntryRecord]:
        """The entries whose pattern is exactly this."""
        entries = self._resources.get((resource_type, pattern_type, name))
        return () if entries is None else entries.values()

    def prefixes(self, resource_type: int, name: str) -> list[str]:
        """The beginnings of this name, itself with them, that prefixed entries may name."""
        lengths = self._prefixed.get(resource_type)
        if not lengths:
            return []
        return [name[:length] for length in lengths if length <= len(name)]

    def _count_prefix(self, record: AccessControlEntryRecord, count: int) -> None:
        if record.pattern_type != PatternType.PREFIXED:
            return
        lengths = self._prefixed.setdefault(record.resource_type, {})
        length = len(record.resource_name)
        lengths[length] = lengths.get(length, 0) + count
        if not lengths[length]:
            del lengths[length]


def _resource(record: AccessControlEntryRecord) -> Resource:
    return record.resource_type, record.pattern_type, record.resource_name
