"""Whether a client that was seen here would be served by a release of Apache Kafka.

A client that asks for versions (ApiVersions) uses the highest that it and the broker know. Here
that is its own highest, since all versions that Kafka ever had are served, so that

    it uses a version below the release's lowest   they have none in common: it fails
    above the release's highest                    it would use a lower one: fine

A client that does not ask sends the versions that it was built with, and fails with each that the
release does not have. One that was answered as another release (`as_version`) has shown its highest
only where that is below the highest of that release; if it is the same, nobody knows.

Kafka 4 tells clients of Produce from version 0 on and serves it from 3 on (KAFKA-18659), so there a
client meets a closed connection where it finds no common version elsewhere. To who fetches with
versions below 10 Kafka 2.1 to 3.9 refuses topics whose compression.type is zstd (KIP-110). Kafka 4
sends it as it is.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.client_libraries import LIBRDKAFKA, advice_for, library_of
from protocol.client_usage import API_VERSIONS, FETCH, ClientUsage
from protocol.release_ranges import RANGES
from protocol.releases import RELEASES, Release, Versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

JUDGED = ("3.9", "4.0", "4.1", "4.2", "4.3", "4.4")
"""The releases that clients are judged for where nobody names others."""

CLOSED = "the connection is closed"
NOTHING_IN_COMMON = "no version in common"
NO_ZSTD = "error 76 (UNSUPPORTED_COMPRESSION_TYPE) for topics whose compression.type is zstd"

WITHOUT_API_VERSIONS = ("0.8.2", "0.9")
"""Releases whose brokers cannot be asked for versions."""
LIBRDKAFKA_3 = (
    "librdkafka 3: brokers before Kafka 0.10.0 are not supported any more, and "
    "api.version.request, broker.version.fallback and api.version.fallback.ms are gone; remove "
    "them from its settings"
)
"""What the documentation of its settings announces (CONFIGURATION.md of librdkafka 2.15)."""
JOIN_GROUP = "JoinGroup"
KAFKA_4_0_0 = "4.0.0: has no JoinGroup 0 and 1, which came back with 4.0.1 (KAFKA-19444)"

KEYS = {name: key for key, (name, _) in RANGES.items()}


class Outcome(StrEnum):
    """What becomes of a client."""

    FINE = "fine"
    FAILS = "fails"
    UNKNOWN = "unknown"


class Verdict(NamedTuple):
    """What becomes of a client with a release. Where it fails, `request` is the first that does and
    `meets` what happens; `sees` is what its user is told, where the library is known."""

    release: str
    outcome: Outcome
    request: str = ""
    meets: str = ""
    sees: str = ""


def judge(usage: ClientUsage, release: str) -> Verdict:
    """The verdict on a client with a release of `RELEASES`."""
    unknown = None
    for request, meets in _obstacles(usage, _release(release)):
        if not meets:
            unknown = unknown or Verdict(release, Outcome.UNKNOWN, request)
            continue
        sees = ""
        if meets == NOTHING_IN_COMMON:
            found = library_of(usage.identity)
            sees = found.library.refusal if found is not None else ""
        return Verdict(release, Outcome.FAILS, request, meets, sees)
    return unknown or Verdict(release, Outcome.FINE)


def age_of(usage: ClientUsage) -> str:
    """The oldest release of Kafka that knows all versions that a client has used: about the age of
    the client, or of the broker that it takes this one for. "" if none knows them all."""
    since = [
        _known_since(KEYS[api], max(versions))
        for api, versions in usage.requests.items()
        if api in KEYS
    ]
    latest = max(since, default=0)
    return RELEASES[latest] if latest < len(RELEASES) else ""


def remarks_on(usage: ClientUsage) -> list[str]:
    """What is to be said of a client beside the verdicts on releases of Kafka: whether it is above
    the floor of librdkafka 3, and what a single patch release lacks."""
    remarks = []
    found = library_of(usage.identity)
    asks = usage.asks_for_versions and usage.identity.as_version not in WITHOUT_API_VERSIONS
    if found is not None and found.library is LIBRDKAFKA and not asks:
        remarks.append(LIBRDKAFKA_3)
    joined = usage.requests.get(JOIN_GROUP)
    if joined and (max if usage.asks_for_versions else min)(joined) < 2:
        remarks.append(KAFKA_4_0_0)
    return remarks


def describe(usage: ClientUsage, releases: Sequence[str] = JUDGED) -> dict[str, Any]:
    """All about a client, as an object for JSON: its usage, its library, its age, the verdicts and
    what to do."""
    verdicts = [judge(usage, release) for release in releases]
    found = library_of(usage.identity)
    fails = any(one.outcome is Outcome.FAILS for one in verdicts)
    return {
        **usage.to_json(),
        "library": None
        if found is None
        else {"name": found.library.name, "release": found.release, "told": found.told},
        "speaks": age_of(usage),
        "verdicts": {one.release: _verdict_json(one) for one in verdicts},
        "remarks": remarks_on(usage),
        "advice": _advice(usage, verdicts) if fails else "",
    }


def page(rows: Iterable[dict[str, Any]], forgotten: int) -> str:
    """The text of a JSON object: that of `clients.json`, and of each client what `describe` adds.
    Raises ValueError for rows that are none of `ClientUsage.to_json`."""
    import json

    clients = [describe(ClientUsage.of_json(row)) for row in rows]
    return json.dumps({"version": 1, "forgotten": forgotten, "clients": clients}) + "\n"


def _verdict_json(verdict: Verdict) -> dict[str, str]:
    told = verdict._asdict()
    del told["release"]
    return {name: str(text) for name, text in told.items() if text}


def _advice(usage: ClientUsage, verdicts: Iterable[Verdict]) -> str:
    if all(one.meets == NO_ZSTD for one in verdicts if one.outcome is Outcome.FAILS):
        return "give the topics that it reads another compression.type than zstd"
    found = library_of(usage.identity)
    return advice_for(found, asks_for_versions=usage.asks_for_versions)


def _obstacles(usage: ClientUsage, release: Release) -> Iterator[tuple[str, str]]:
    """The requests of a client that a release does not serve, in the order of their first use,
    each with what happens; "" where that cannot be known."""
    for api, versions in _asked(usage):
        key = KEYS.get(api)
        if key is None or (api == API_VERSIONS and release.answered(key) is not None):
            continue
        there = release.answered(key)
        if usage.asks_for_versions:
            version = max(versions)
            if there is None:
                yield f"{api} v{version}", NOTHING_IN_COMMON
            elif version < there.lowest:
                yield f"{api} v{version}", _meets(usage, release, key, version)
        else:
            for version in versions:
                if there is None or not there.lowest <= version <= there.highest:
                    yield f"{api} v{version}", CLOSED
    if usage.zstd_conversions and release.refuses_zstd:
        yield f"{FETCH} v{max(usage.requests.get(FETCH, [0]))}", NO_ZSTD


def _asked(usage: ClientUsage) -> Iterator[tuple[str, list[int]]]:
    """All that a client has asked for, what it was refused included."""
    for api, versions in usage.requests.items():
        yield api, versions + usage.refused.get(api, [])
    for api, versions in usage.refused.items():
        if api not in usage.requests:
            yield api, versions


def _meets(usage: ClientUsage, release: Release, key: int, version: int) -> str:
    """What a client that asks for versions meets with one that is too low."""
    answered_as = usage.identity.as_version
    if answered_as in RELEASES:
        offered = _release(answered_as).answered(key)
        if offered is not None and version >= offered.highest:
            return ""
    advertised = release.advertised.get(key, Versions(0, -1))
    return CLOSED if advertised.lowest <= version <= advertised.highest else NOTHING_IN_COMMON


@cache
def _release(name: str) -> Release:
    return Release(name)


@lru_cache(maxsize=4096)
def _known_since(key: int, version: int) -> int:
    """The place in `RELEASES` of the first that answers this version or a higher one."""
    for place, name in enumerate(RELEASES):
        versions = _release(name).answered(key)
        if versions is not None and versions.highest >= version:
            return place
    return len(RELEASES)
