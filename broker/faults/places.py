"""Topics, partitions and groups of a request, by its declaration; and an answer made of two.

A request that names topics has a list of structs of them, each with a name (or an id) and most with
a list of partitions; so has its answer. In some the list lies in another one (of groups, markers or
transactions): the places of those are found too, but such a request is not taken apart.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from broker.faults.engine import Place
    from protocol.fields import Field
    from protocol.schema import Message, Struct

    NameOf = Callable[[bytes], str]
    """The name of a topic by its id; the id as text, if there is none."""

NAMES = ("name", "topic", "topic_name")
INDEXES = ("index", "partition", "partition_index")
LISTS = ("topics", "topic_data", "topic_partitions", "v3_and_below_topics", "responses")
NAMES_ALONE = "topic_names"
"""Topics as older versions of DeleteTopics name them."""
GROUP, GROUPS = "group_id", ("groups", "groups_names")
"""The id of a group, and lists of them: of ids, or of structs that have one."""
LEFT_OUT = "forgotten_topics_data"
"""What a fetch no longer wants."""


def places(message: Message, name_of: NameOf) -> list[Place]:
    """Every topic and partition that a request names."""
    return list(_places_in(message, name_of))


def groups(message: Any) -> list[str]:
    """The id of every group that a request names."""
    found = [getattr(message, GROUP)] if getattr(message, GROUP, None) else []
    for name in GROUPS:
        listed = getattr(message, name, None) or ()
        found += [one if isinstance(one, str) else getattr(one, GROUP, "") for one in listed]
    return found


def _places_in(struct: Struct, name_of: NameOf) -> Iterator[Place]:
    for field in type(struct)._fields:
        if field.name == NAMES_ALONE:
            yield from ((name, None) for name in getattr(struct, field.name))
        for item in _structs(struct, field):
            if field.name in LISTS:
                yield from _places_of(item, name_of)
            elif field.name != LEFT_OUT:
                yield from _places_in(item, name_of)


def _structs(struct: Struct, field: Field) -> list[Any]:
    """The structs in a list, if it is one of structs."""
    if field.item is None or field.item.struct is None:
        return []
    return getattr(struct, field.name) or []


def _places_of(topic: Struct, name_of: NameOf) -> Iterator[Place]:
    name = _name(topic, name_of)
    partitions = _partitions(topic)
    if partitions is None:
        yield name, None
        return
    for partition in getattr(topic, partitions.name) or ():
        yield name, _index(partition)


def _name(topic: Struct, name_of: NameOf) -> str:
    topic_id = getattr(topic, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        return name_of(topic_id)
    return next((getattr(topic, key) for key in NAMES if getattr(topic, key, None)), "")


def _partitions(topic: Struct) -> Field | None:
    """The list of partitions of a topic: of structs with an index, or of indexes."""
    for field in type(topic)._fields:
        if field.item is None or not field.name.startswith("partition"):
            continue
        of = field.item.struct
        if of is None or any(inner.name in INDEXES for inner in of._fields):
            return field
    return None


def _index(partition: Any) -> int:
    if isinstance(partition, int):
        return partition
    index: int = next(getattr(partition, key) for key in INDEXES if hasattr(partition, key))
    return index


def can_be_split(message: Message) -> bool:
    """Whether the places of a request are all in one list of its own."""
    fields = [field for field in type(message)._fields if field.name in LISTS]
    nested = any(
        field.name != LEFT_OUT and field.name not in LISTS and _structs(message, field)
        for field in type(message)._fields
    )
    return not nested and sum(bool(_structs(message, field)) for field in fields) == 1


def only(message: Any, chosen: Container[Place], name_of: NameOf, *, others: bool = False) -> Any:
    """The request with these places alone, or with the `others` alone. The structs that it has in
    common with the whole one are the same objects."""
    part = copy(message)
    for field in type(message)._fields:
        if field.name in LISTS and _structs(message, field):
            kept = [
                topic
                for whole in getattr(message, field.name)
                if (topic := _topic_with(whole, chosen, name_of, others=others)) is not None
            ]
            setattr(part, field.name, kept)
    return part


def _topic_with(
    topic: Any, chosen: Container[Place], name_of: NameOf, *, others: bool
) -> Any | None:
    name, partitions = _name(topic, name_of), _partitions(topic)
    if partitions is None:
        return topic if ((name, None) in chosen) is not others else None
    kept = [
        partition
        for partition in getattr(topic, partitions.name) or ()
        if ((name, _index(partition)) in chosen) is not others
    ]
    if not kept:
        return None
    part = copy(topic)
    setattr(part, partitions.name, kept)
    return part


def merge(answer: Any, refused: Any, name_of: NameOf) -> Any:
    """An answer with the topics of another one beside its own; the entries stay the same objects.
    The fields of the whole are those of `answer`."""
    merged = copy(answer)
    for field in type(answer)._fields:
        if field.name not in LISTS:
            continue
        topics = [copy(topic) for topic in getattr(answer, field.name) or ()]
        by_name = {_name(topic, name_of): topic for topic in topics}
        for topic in getattr(refused, field.name) or ():
            known = by_name.get(_name(topic, name_of))
            partitions = _partitions(topic)
            if known is None or partitions is None:
                topics.append(topic)
            else:
                both = [*getattr(known, partitions.name), *getattr(topic, partitions.name)]
                setattr(known, partitions.name, both)
        setattr(merged, field.name, topics)
    return merged
