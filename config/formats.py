"""Kafka's version names, where they choose the record format of a topic.

`message.format.version` and `inter.broker.protocol.version` take the name of a release
("0.10.2", "2.8", "2.8.1") or of one internal version of it ("0.10.2-IV0"). The record
format is all that follows from the first here: 0 up to 0.9, 1 for 0.10, 2 from 0.11.
"""

from __future__ import annotations

from config.kinds import Kind
from config.listeners import format_pairs, parse_pairs

# The highest internal version (-IVn) of each release; None for those before they existed.
_RELEASES: dict[tuple[int, ...], int | None] = {
    (0, 8, 0): None,
    (0, 8, 1): None,
    (0, 8, 2): None,
    (0, 9, 0): None,
    (0, 10, 0): 1,
    (0, 10, 1): 2,
    (0, 10, 2): 0,
    (0, 11, 0): 2,
    (1, 0): 0,
    (1, 1): 0,
    (2, 0): 1,
    (2, 1): 2,
    (2, 2): 1,
    (2, 3): 1,
    (2, 4): 1,
    (2, 5): 0,
    (2, 6): 0,
    (2, 7): 2,
    (2, 8): 1,
    (3, 0): 1,
    (3, 1): 0,
    (3, 2): 0,
    (3, 3): 3,
    (3, 4): 0,
    (3, 5): 2,
    (3, 6): 2,
    (3, 7): 4,
    (3, 8): 0,
    (3, 9): 0,
    (4, 0): 3,
    # Not tied down: what a later release numbers makes no difference to the record format.
    (4, 1): 9,
    (4, 2): 9,
    (4, 3): 9,
    (4, 4): 9,
}


def release_of(text: str) -> tuple[int, ...]:
    """The version a name stands for, comparable: (release..., internal version).

    A release without -IVn stands for its last internal version, as in Kafka. ValueError
    when there is no such version.
    """
    wish = "a Kafka version from 0.8.0 to 4.4, as in 2.8, 0.10.2 or 3.0-IV1"
    name, dash, internal = text.partition("-IV")
    parts = name.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        raise ValueError(wish)
    length = 3 if parts[0] == "0" else 2
    release = tuple(map(int, parts[:length]))
    if release not in _RELEASES:
        raise ValueError(wish)
    highest = _RELEASES[release]
    if not dash:
        return (*release, 0 if highest is None else highest)
    if highest is None or len(parts) != length or not (internal.isascii() and internal.isdigit()):
        raise ValueError(wish)
    if int(internal) > highest:
        raise ValueError(f"{wish}; {name} ends with {name}-IV{highest}")
    return (*release, int(internal))


def record_format(version: str) -> int:
    """The record format (magic 0, 1 or 2) a topic of this `message.format.version` stores."""
    release = release_of(version)
    if release < (0, 10):
        return 0
    return 1 if release < (0, 11) else 2


def _parse(text: str) -> str:
    release_of(text)
    return text


NAMES = {
    {"0.9.0": "0.9", "0.11.0": "0.11"}.get(text, text): text
    for text in (".".join(map(str, one)) for one in _RELEASES if one >= (0, 8, 2))
}
"""The releases from 0.8.2 on by their usual names, the oldest first, each with the version that it
is as a `message.format.version`."""


def release_name(text: str) -> str:
    """The name of the release of a version, whatever its patch: 4.1 for 4.1.2, 0.9 for 0.9.0.1.
    ValueError, with the nearest release, when there is none from 0.8.2 on."""
    numbers = {name: _number(name) for name in NAMES}
    parts = text.split(".")
    wish = f"one of Kafka's releases {', '.join(NAMES)}"
    if len(parts) < 2 or not all(p.isascii() and p.isdigit() and len(p) < 4 for p in parts):
        raise ValueError(wish)
    number = _number(text)
    for name, of_release in numbers.items():
        if of_release == number:
            return name
    nearest = next((one for one in reversed(numbers) if numbers[one] < number), next(iter(NAMES)))
    raise ValueError(f"{wish}; the nearest is {nearest}")


def _number(text: str) -> tuple[int, ...]:
    parts = [int(part) for part in text.split(".")]
    return tuple((*parts, 0)[:3] if parts[0] == 0 else parts[:2])


# The text is kept as given, because that is what DescribeConfigs shows; to Kafka it is a string.
kafka_version: Kind[str] = Kind("string", 2, _parse)

# Kafka has no such keys.
release: Kind[str] = Kind("string", 2, release_name)


def _releases_by_client(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, release_name(version)) for name, version in parse_pairs(text).items())


releases_by_client: Kind[tuple[tuple[str, str], ...]] = Kind(
    "string", 2, _releases_by_client, format_pairs
)


PROCESSES_MAX = 64
ALL_CORES = 0
"""`broker.processes=auto`: as many as the system lets this program use."""


def _process_count(text: str) -> int:
    if text.lower() == "auto":
        return ALL_CORES
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= PROCESSES_MAX):
        raise ValueError(f"a number from 1 to {PROCESSES_MAX}, or auto")
    return int(text)


process_count = Kind(
    "string", 2, _process_count, lambda count: "auto" if count == ALL_CORES else str(count)
)
"""How many processes serve a data directory; ALL_CORES for `auto`."""
