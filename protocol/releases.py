"""The releases of Apache Kafka as their clients see them: what each answers, and how it refuses.

Which versions of which APIs a release has is in `protocol.release_ranges`. What cannot be read
there is declared here, and was seen in these releases:

- 4.x advertises Produce from version 0 on and answers it from 3 on: librdkafka looks for the old
  versions to know which codecs a broker takes (KAFKA-18659).
- Telemetry (KIP-714) is advertised by brokers that have a plug-in for it alone, and answered by
  all.
- 0.8.2 has two requests of groups in its table of messages, and no groups.
- An ApiVersions of a version that is too new is answered with error 35 since 0.10.0, and since 2.4
  with the range of ApiVersions itself (KIP-511). Before 0.10.0 there is no ApiVersions.

- 0.8.2 and 0.9 do not look at the version of the oldest requests: they read each as the newest that
  they know. What 0.9 cannot read, or does not know, it leaves without an answer, and goes on.
- A topic may leave its counts to the broker since 2.4 (KIP-464).
- A Fetch below version 10 gets zstd as it is stored from version 4 on, and error 76 below, where
  that would have to be converted (KIP-110). From 2.1 to 3.9 it gets error 76 in any version if the
  topic's compression.type is zstd, whatever is stored there; 4 does not look at that.

Not imported where nobody asks for another release.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.logdata import metadata_levels
from protocol.release_ranges import RANGES, READ_FROM

PRODUCE, JOIN_GROUP, HEARTBEAT = 0, 11, 12
WITH_A_PLUG_IN = (71, 72)
PRODUCE_ANSWERED_SINCE = 3
"""By Kafka 4."""

READ_AS_NEWEST = {"0.8.2": (0, 1, 2, 3, 9, 10), "0.9": (0, 1, 2, 3, 9)}
"""The requests of which any version is taken for the newest that there is."""
UNANSWERED = ("0.9",)

ZSTD_SINCE, ZSTD_SENT_SINCE = (2, 1), (4, 0)
RANGE_TOLD_SINCE = (2, 4)
KRAFT_SINCE = (3, 3)
DEFAULT_COUNTS_SINCE = (2, 4)
FEATURES_SINCE = {
    "metadata.version": KRAFT_SINCE,
    "kraft.version": (3, 9),
    "group.version": (4, 0),
    "transaction.version": (4, 0),
}
"""The releases whose brokers tell of a feature (KIP-584)."""
METADATA_VERSION_7_SINCE = (4, 0)
"""The first that does not open what is older than level 7."""
EPOCH_OF_FEATURES_SINCE = (2, 7)


class Versions(NamedTuple):
    """The lowest and the highest version or level, both included."""

    lowest: int
    highest: int


class Release:
    """One release, as in "0.10.2" or "4.1": a broker of a new cluster as it comes, up to 3.2 with
    ZooKeeper."""

    def __init__(self, name: str) -> None:
        """Raises KeyError for a release that is not in `RELEASES`."""
        self.name = name
        self.version = READ_FROM[name]
        """The patch release that all this was read from."""
        self.number = tuple(map(int, name.split(".")))
        """Comparable with that of others."""
        self._versions = _versions(name)

    def __repr__(self) -> str:
        return f"Release({self.name})"

    @property
    def advertised(self) -> dict[int, Versions]:
        """The versions of each API that ApiVersions tells, by key."""
        return {key: one for key, one in self._versions.items() if key not in WITH_A_PLUG_IN}

    def answered(self, key: int) -> Versions | None:
        """The versions of an API that are answered, None if none is."""
        found = self._versions.get(key)
        if found is not None and key == PRODUCE and self.number >= (4,):
            return found._replace(lowest=PRODUCE_ANSWERED_SINCE)
        return found

    def reads_as_newest(self, key: int) -> bool:
        """Whether versions of this API that it does not know are read as the newest it does."""
        return key in READ_AS_NEWEST.get(self.name, ())

    @property
    def leaves_unanswered(self) -> bool:
        """Whether what it does not know meets silence, where others close the connection."""
        return self.name in UNANSWERED

    @property
    def has_default_counts(self) -> bool:
        """Whether a new topic may come without counts of partitions and replicas."""
        return self.number >= DEFAULT_COUNTS_SINCE

    @property
    def tells_its_range(self) -> bool:
        """Whether the refusal of an ApiVersions says which of its versions there are."""
        return self.number >= RANGE_TOLD_SINCE

    @property
    def knows_zstd(self) -> bool:
        """Whether zstd is stored; it makes nothing else of it for who does not know it, which is
        Fetch below version 10."""
        return self.number >= ZSTD_SINCE

    @property
    def refuses_zstd(self) -> bool:
        """Whether it refuses them topics whose compression.type is zstd, whatever is in these."""
        return ZSTD_SINCE <= self.number < ZSTD_SENT_SINCE

    @property
    def has_features(self) -> bool:
        """Whether levels of features are kept at all."""
        return self.number >= KRAFT_SINCE

    @property
    def has_an_epoch_of_features(self) -> bool:
        """Whether it tells since when its levels hold; without KRaft that is 0."""
        return self.number >= EPOCH_OF_FEATURES_SINCE

    def knows_feature(self, name: str) -> bool:
        """Whether its brokers tell of this feature."""
        since = FEATURES_SINCE.get(name)
        return since is not None and self.number >= since

    @property
    def metadata_versions(self) -> Versions:
        """The levels of metadata.version that it supports; for releases with features."""
        lowest = 7 if self.number >= METADATA_VERSION_7_SINCE else 1
        names = metadata_levels.RELEASES
        return Versions(lowest, max(n for n in names if names[n].startswith(f"{self.name}-")))


RELEASES = tuple(READ_FROM)
"""The names of all of them, the oldest first."""


def _versions(release: str) -> dict[int, Versions]:
    found = {
        key: versions
        for key, (_, changes) in RANGES.items()
        if (versions := _at(release, changes)) is not None
    }
    if release == "0.8.2":
        del found[JOIN_GROUP], found[HEARTBEAT]
    return found


def _at(release: str, changes: str) -> Versions | None:
    """The range that held in a release, of those in a row of the table."""
    until = RELEASES.index(release)
    now = None
    for change in changes.split(", "):
        since, text = change.split(" ")
        if RELEASES.index(since) > until:
            break
        lowest, _, highest = text.partition("-")
        now = None if text == "none" else Versions(int(lowest), int(highest))
    return now
