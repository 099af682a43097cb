"""docs/releases.md: the releases of Kafka that a broker answers as, from `protocol.releases`."""

from __future__ import annotations

from broker.network.dispatch import HANDLERS
from protocol.registry import APIS
from protocol.release_ranges import RANGES
from protocol.releases import RELEASES, Release

HEAD = """\
# The releases that a broker can answer as

What each release of Apache Kafka offers its clients, and so does a broker that answers as it
([rehearsal.md](rehearsal.md)). `make docs` makes this page. The ranges were read from the release
that stands behind its name, by `python -m tests.support.release_ranges`; *APIs* are those that its
brokers advertise, and of Produce, Fetch and Metadata there are the versions that they answer. *Not
here* is what triglot does not answer: a broker that answers as this release advertises the others
alone.

| release | read from | APIs | Produce | Fetch | Metadata | not here |
| --- | --- | ---: | --- | --- | --- | --- |
"""
BETWEEN_BROKERS = ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown")
SHORT = f"{len(BETWEEN_BROKERS)} between brokers"
TAIL = f"""
Between brokers with ZooKeeper are {", ".join(BETWEEN_BROKERS)}.
"""


def releases_page() -> str:
    return HEAD + "".join(map(_row, map(Release, RELEASES))) + TAIL


def _row(release: Release) -> str:
    ranges = (release.answered(key) for key in (0, 1, 3))
    shown = (f"{one.lowest}-{one.highest}" if one else "" for one in ranges)
    cells = [release.name, release.version, str(len(release.advertised)), *shown, _missing(release)]
    return f"| {' | '.join(cells)} |\n"


def _missing(release: Release) -> str:
    """The APIs that are not here, and the versions of others."""
    names = []
    for key, (_, highest) in release.advertised.items():
        name = RANGES[key][0]
        if key not in HANDLERS:
            names.append(name)
        elif highest > APIS[key].max_version:
            names.append(f"{name} {APIS[key].max_version + 1}-{highest}")
    if names[: len(BETWEEN_BROKERS)] == list(BETWEEN_BROKERS):
        names[: len(BETWEEN_BROKERS)] = [SHORT]
    return ", ".join(names)
