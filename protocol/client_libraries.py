"""The client libraries of Kafka: by what each is known, and from which release on it can do with
Kafka 4.

Kafka 4.0 has dropped old versions of requests (KIP-896), and the formats 0 and 1 of records with
them (KIP-724). KIP-896 names the releases that it left enough for: librdkafka 1.8.2 (so the
libraries built on it: Confluent's for Python, Go, .NET and JavaScript, node-rdkafka, rdkafka-ruby),
KafkaJS 1.15.0, Sarama 1.30.1, kafka-python 2.0.2. For Java the documentation of Kafka says 2.1
("Compatibility", Client/Broker Forward Compatibility). What is not said there is left open here: a
library without `since` has the advice that holds for all.

Sarama needs more than KIP-896 says: up to 1.40.1 (by its source; 1.29.1, 1.30.0 and 1.30.1 were
tried) it commits offsets with OffsetCommit v1, whatever its Config.Version is, unless it has a
GroupInstanceId or a retention of offsets, and Kafka 4 has dropped that. 1.41.0 does not.

What their users see was tried, too. KafkaJS and Sarama do not look at the lowest version that a
broker has: what is too old they send all the same, and the connection is closed.

Names that clients tell with KIP-511 are those of the libraries' sources; a client id says nothing
for certain, and is taken for what libraries put there by themselves.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from protocol.client_usage import ClientIdentity


class Library(NamedTuple):
    """A client library.

    since     the first release that is enough for Kafka 4, "" where nobody says
    setting   what has it use old versions on purpose, "" for nothing
    refusal   what its user sees where the broker and it have no version in common
    """

    name: str
    since: str = ""
    setting: str = ""
    refusal: str = ""


JAVA = Library("the Java client", "2.1", refusal="UnsupportedVersionException")
LIBRDKAFKA = Library(
    "librdkafka",
    "1.8.2",
    "broker.version.fallback with api.version.request=false",
    "Local: Required feature not supported by broker (_UNSUPPORTED_FEATURE)",
)
KAFKA_PYTHON = Library(
    "kafka-python", "2.0.2", "api_version", "IncompatibleBrokerVersion or KafkaConfigurationError"
)
SARAMA = Library("Sarama", "1.41.0", "Config.Version", "EOF, as in kafka: error while consuming")
KAFKAJS = Library(
    "KafkaJS",
    "1.15.0",
    refusal="KafkaJSServerDoesNotSupportApiKey, or KafkaJSConnectionError: Closed connection",
)
AIOKAFKA = Library("aiokafka", setting="api_version", refusal="IncompatibleBrokerVersion")
FRANZ_GO = Library("franz-go", setting="kgo.MaxVersions")
KAFKA_GO = Library("kafka-go")

BY_SOFTWARE_NAME = {
    "apache-kafka-java": JAVA,
    "librdkafka": LIBRDKAFKA,
    "confluent-kafka-python": LIBRDKAFKA,
    "confluent-kafka-go": LIBRDKAFKA,
    "confluent-kafka-dotnet": LIBRDKAFKA,
    "confluent-kafka-javascript": LIBRDKAFKA,
    "kafka-python": KAFKA_PYTHON,
    "aiokafka": AIOKAFKA,
    "kgo": FRANZ_GO,
    "sarama": SARAMA,
}
_CLIENT_IDS = [
    (re.compile(pattern), library)
    for pattern, library in (
        (r"kafka-python-(?P<release>\d+\.\d[\w.]*)", KAFKA_PYTHON),
        (r"kafka-python\b|kafka\.consumer\.kafka$", KAFKA_PYTHON),
        (r"aiokafka-(?P<release>\d+\.\d[\w.]*)", AIOKAFKA),
        (r"aiokafka\b", AIOKAFKA),
        (r"rdkafka$", LIBRDKAFKA),
        (r"sarama$", SARAMA),
        (r"kafkajs$", KAFKAJS),
        (r"kgo$", FRANZ_GO),
        (r".*\(github\.com/segmentio/kafka-go\)$", KAFKA_GO),
        (r"kafka-node-client$", Library("kafka-node")),
        (r"no-kafka-client", Library("no-kafka")),
        (r"pykafka$", Library("pykafka")),
        (r"ruby-kafka$", Library("ruby-kafka")),
        (r"(producer|consumer|adminclient)-(.*-)?\d+$", JAVA),
    )
]
"""What libraries put where a program sets no client id."""


class Found(NamedTuple):
    """The library of a client, as far as it is known; `release` is "" where it is not."""

    library: Library
    release: str
    told: bool
    """By the client itself (KIP-511), and not guessed from its client id."""


def library_of(identity: ClientIdentity) -> Found | None:
    """The library that a client uses; None if nothing says."""
    name, version = identity.software_name, identity.software_version
    if name:
        library = BY_SOFTWARE_NAME.get(name)
        if library is None:
            return Found(Library(name), version, told=True)
        return Found(library, _librdkafka(version) if library is LIBRDKAFKA else version, told=True)
    for pattern, library in _CLIENT_IDS:
        match = pattern.match(identity.client_id)
        if match is not None:
            release = match.groupdict().get("release") or ""
            return Found(library, release, told=False)
    return None


def advice_for(found: Found | None, *, asks_for_versions: bool) -> str:
    """What to do with a client that Kafka 4 does not serve."""
    if found is None:
        return "upgrade it to a release that knows Kafka 2.1 or later (KIP-896)"
    library, release = found.library, found.release
    if library.setting and release and library.since and is_since(release, library.since):
        return f"remove {library.setting} from its settings: {library.name} {release} is new enough"
    if not library.since:
        return f"upgrade {library.name} to a release that knows Kafka 2.1 or later (KIP-896)"
    advice = f"upgrade {library.name} to {library.since} or later"
    if library.setting and not asks_for_versions:
        advice += f", and see that nothing sets {library.setting}"
    return advice


def is_since(release: str, since: str) -> bool:
    """Whether a release is that one or a later one, by the numbers they begin with."""
    return _numbers(release) >= _numbers(since)


def _numbers(release: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+(?:\.\d+)*)", release)
    return tuple(map(int, found[1].split("."))) if found else ()


def _librdkafka(version: str) -> str:
    """Its release in the version that a library around it tells: `2.3.0-rdkafka-2.3.0`."""
    return version.rpartition("rdkafka-")[2]
