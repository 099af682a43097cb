"""What a client has shown of itself: who it is, the requests it used, the records it wrote.

A broker notes it (`broker.census`), a file keeps it, and `protocol.client_verdicts` tells from it
how the client would fare with a release of Kafka. The JSON of it is the same in the file, at the
port of the metrics and in `triglot clients --json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.records.compression import NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT_MAX = 128
"""Characters of a client id, a software name or a version that are kept of it."""
REFUSED_MAX = 32
"""Versions of APIs that are kept of those that a client was refused."""
API_VERSIONS, FETCH = "ApiVersions", "Fetch"
FORMATS = (0, 1, 2)
_COUNTS = ("connections", "conversions", "converted_bytes", "zstd_conversions", "rebuilt_sets")


class ClientIdentity(NamedTuple):
    """The client, as far as two of them are told apart. `as_version` is the release of Kafka that
    it was answered as, if it was one (`protocol.rehearsal`)."""

    address: str
    client_id: str
    software_name: str = ""
    software_version: str = ""
    as_version: str = ""

    def cut(self) -> ClientIdentity:
        """The same with no text longer than `TEXT_MAX`."""
        return ClientIdentity(*(text[:TEXT_MAX] for text in self))


class ClientUsage:
    """One client. Times are ms since 1970.

    requests           versions of each API in the order of their first use
    refused            those that it asked for and was not served
    written            format (0 to 2) and codec of the sets that it produced
    read               the same of a sample of what it was sent
    connections        that it has opened
    rebuilt_sets       produced sets that were stored in another form than they came in
    conversions        times that records of a partition were converted for it
    converted_bytes    bytes that it got of those
    zstd_conversions   those of topics whose compression.type is zstd
    """

    __slots__ = (
        "first_ms",
        "identity",
        "last_ms",
        "read",
        "refused",
        "requests",
        "written",
        *_COUNTS,
    )

    connections: int
    conversions: int
    converted_bytes: int
    zstd_conversions: int
    rebuilt_sets: int

    def __init__(self, identity: ClientIdentity, now_ms: int) -> None:
        self.identity = identity
        self.first_ms = self.last_ms = now_ms
        self.requests: dict[str, list[int]] = {}
        self.refused: dict[str, list[int]] = {}
        self.read: set[tuple[int, int]] = set()
        self.written: set[tuple[int, int]] = set()
        for name in _COUNTS:
            setattr(self, name, 0)

    @property
    def asks_for_versions(self) -> bool:
        """Whether it asks which versions there are; others send what they were built with."""
        return API_VERSIONS in self.requests

    def note_request(self, api: str, version: int) -> None:
        """It has used this version."""
        versions = self.requests.setdefault(api, [])
        if version not in versions:
            versions.append(version)

    def note_refusal(self, api: str, version: int) -> None:
        """It was refused this version."""
        versions = self.refused.get(api, [])
        if version not in versions and sum(map(len, self.refused.values())) < REFUSED_MAX:
            self.refused[api] = [*versions, version]

    def note_read(self, magic: int, codec: int) -> None:
        """It has been sent records like these; of those that cannot be, nothing is kept."""
        if _can_be(magic, codec):
            self.read.add((magic, codec))

    def note_written(self, magic: int, codec: int) -> None:
        """It has sent a set like this; of one that cannot be, nothing is kept."""
        if _can_be(magic, codec):
            self.written.add((magic, codec))

    def add(self, earlier: ClientUsage) -> None:
        """Take over what the same client has shown before."""
        later_requests, later_refused = self.requests, self.refused
        self.requests, self.refused = {}, {}
        for requests, refused in (
            (earlier.requests, earlier.refused),
            (later_requests, later_refused),
        ):
            for api, versions in requests.items():
                for version in versions:
                    self.note_request(api, version)
            for api, versions in refused.items():
                for version in versions:
                    self.note_refusal(api, version)
        self.first_ms = min(self.first_ms, earlier.first_ms)
        self.last_ms = max(self.last_ms, earlier.last_ms)
        self.read |= earlier.read
        self.written |= earlier.written
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(earlier, name))

    def to_json(self) -> dict[str, Any]:
        """The object that `of_json` reads."""
        return {
            **self.identity._asdict(),
            "first_seen_ms": self.first_ms,
            "last_seen_ms": self.last_ms,
            "requests": {api: list(versions) for api, versions in self.requests.items()},
            "refused": {api: list(versions) for api, versions in self.refused.items()},
            "written": _formats_json(self.written),
            "read": _formats_json(self.read),
            **{name: getattr(self, name) for name in _COUNTS},
        }

    @classmethod
    def of_json(cls, found: Any) -> ClientUsage:
        """Raises ValueError for anything that `to_json` does not give; more fields are no
        matter."""
        try:
            identity = ClientIdentity(*(_text(found[name]) for name in ClientIdentity._fields))
            usage = cls(identity.cut(), _count(found["first_seen_ms"]))
            usage.last_ms = _count(found["last_seen_ms"])
            usage.requests = _versions(found["requests"])
            usage.refused = _versions(found["refused"])
            for field, note in (("written", usage.note_written), ("read", usage.note_read)):
                for one in found[field]:
                    note(_count(one["format"]), NAMES.index(one["codec"]))
            for name in _COUNTS:
                setattr(usage, name, _count(found[name]))
        except KeyError as error:
            raise ValueError(f"a client without or with a wrong {error.args[0]!r}") from None
        except (TypeError, AttributeError):
            raise ValueError("a client is not the object that it should be") from None
        return usage


def _can_be(magic: int, codec: int) -> bool:
    return magic in FORMATS and codec < len(NAMES)


def _formats_json(formats: set[tuple[int, int]]) -> list[dict[str, Any]]:
    return [{"format": magic, "codec": NAMES[codec]} for magic, codec in sorted(formats)]


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise ValueError(f"found {found!r}, wanted a text")
    return found


def _count(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError(f"found {found!r}, wanted a number from 0 on")
    return found


def _versions(found: Mapping[str, list[int]]) -> dict[str, list[int]]:
    return {_text(api): [_count(one) for one in versions] for api, versions in found.items()}
