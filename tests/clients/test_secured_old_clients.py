"""Java clients of every age, and old ones of Python, over TLS and SASL.

Java before 1.0 sends tokens without a header; 0.9 knows TLS alone, and SCRAM of 0.10.2 needs a
class that Java lost after 8.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.clients.available import MARKS, end_of_test
from tests.clients.drivers.driver import Refused
from tests.clients.drivers.old_program_driver import DRIVERS
from tests.clients.records import FIRST_TIMESTAMP_MS, Record
from tests.support.certificates import PASSWORD
from tests.support.fetched import NotAvailable
from tests.support.secured import USERS, SecuredBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.drivers.old_program_driver import OldProgramDriver

# The first run on a machine fetches every client.
pytestmark = [pytest.mark.clients, pytest.mark.long, pytest.mark.timeout(600)]

RECORD_BYTES = 40_000
RECORD_COUNT = 40
"""More than an answer that old clients ask for, or a write of TLS."""

LOGIN = "org.apache.kafka.common.security.{}.{}LoginModule"
MODULES = {"PLAIN": LOGIN.format("plain", "Plain"), "SCRAM": LOGIN.format("scram", "Scram")}
SASL_AUTHENTICATION_FAILED = 58


class Way(NamedTuple):
    """A client, and how it comes in."""

    library: str
    release: str
    protocol: str
    mechanism: str = ""
    truststore: str = "PKCS12"

    @property
    def client(self) -> str:
        return f"{self.library} {self.release}"

    def __str__(self) -> str:
        of_tls = f"-{self.truststore}" if self.protocol.endswith("SSL") else ""
        return "-".join(filter(None, self[:4])) + of_tls


WAYS = [
    Way("java", "0.9.0.1", "SSL"),
    Way("java", "0.10.2.2", "SASL_PLAINTEXT", "PLAIN"),
    Way("java", "0.10.2.2", "SASL_SSL", "PLAIN"),
    Way("java", "3.9.2", "SASL_SSL", "PLAIN"),
    Way("java", "3.9.2", "SASL_SSL", "SCRAM-SHA-512"),
    Way("java", "3.9.2", "SASL_SSL", "SCRAM-SHA-512", "PEM"),
    Way("java", "4.4.0", "SASL_SSL", "SCRAM-SHA-256"),
    Way("java", "4.4.0", "SASL_SSL", "SCRAM-SHA-512"),
    Way("java", "4.4.0", "SASL_SSL", "SCRAM-SHA-512", "PEM"),
    Way("kafka-python", "1.4.7", "SASL_PLAINTEXT", "PLAIN"),
    Way("kafka-python", "1.4.7", "SASL_SSL", "PLAIN", "PEM"),
    Way("kafka-python", "2.0.2", "SASL_PLAINTEXT", "PLAIN"),
    Way("kafka-python", "2.0.2", "SASL_SSL", "PLAIN", "PEM"),
    Way("kafka-python", "2.0.2", "SASL_SSL", "SCRAM-SHA-256", "PEM"),
    Way("kafka-python", "2.0.2", "SASL_SSL", "SCRAM-SHA-512", "PEM"),
]


def given(ways: list[Way]) -> list[object]:
    """Values of a test's parameter `way`."""
    marks = {"java": MARKS["java"], "kafka-python": MARKS["python"]}
    return [pytest.param(way, id=str(way), marks=marks[way.library]) for way in ways]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        broker.add_scram_users()
        yield broker
        assert "Traceback" not in broker.output()


class Drivers:
    """One for each client, made when a test first asks for it."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._made: dict[str, OldProgramDriver] = {}

    def get(self, way: Way) -> OldProgramDriver:
        if way.client not in self._made:
            folder = self._factory.mktemp(way.library)
            try:
                self._made[way.client] = DRIVERS[way.library](way.release, folder)
            except NotAvailable as reason:
                runtime = "java" if way.library == "java" else "python"
                end_of_test(runtime, f"{way.client}: {reason}")
        return self._made[way.client]

    def close(self) -> None:
        for driver in self._made.values():
            driver.program.close()


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    drivers = Drivers(tmp_path_factory)
    yield drivers
    drivers.close()


def settings_of(broker: SecuredBroker, way: Way, password: str) -> dict[str, str]:
    """What the client is told, in the words of its library."""
    if way.library == "kafka-python":
        told = {
            "security_protocol": way.protocol,
            "sasl_mechanism": way.mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": password,
        }
        if way.protocol.endswith("SSL"):
            told["ssl_cafile"] = str(broker.authority.certificate)
        return told
    settings = {"security.protocol": way.protocol}
    if way.protocol.endswith("SSL"):
        settings["ssl.truststore.type"] = way.truststore
        if way.truststore == "PEM":
            settings["ssl.truststore.location"] = str(broker.authority.certificate)
        else:
            settings["ssl.truststore.location"] = str(broker.authority.truststore)
            settings["ssl.truststore.password"] = PASSWORD
    if way.mechanism:
        settings["sasl.mechanism"] = way.mechanism
        module = MODULES[way.mechanism.split("-")[0]]
        # The words of a command stand between spaces; tabs will do.
        settings["sasl.jaas.config"] = "\t".join(
            (module, "required", 'username="alice"', f'password="{password}";')
        )
    return settings


def records() -> list[Record]:
    made = random.Random(1)
    return [
        Record(0, FIRST_TIMESTAMP_MS + number, b"%d" % number, made.randbytes(RECORD_BYTES))
        for number in range(RECORD_COUNT)
    ]


@pytest.mark.parametrize("way", given(WAYS))
def test_records_come_back_as_they_were_sent(
    secured: SecuredBroker, drivers: Drivers, way: Way, topic: str
) -> None:
    driver, bootstrap = drivers.get(way), secured.bootstrap_of(way.protocol)
    driver.settings = settings_of(secured, way, USERS["alice"])
    wanted = records()

    driver.produce(bootstrap, topic, wanted, codec="none")
    found = driver.consume(bootstrap, topic, {0: len(wanted)})[0]

    assert [offset for offset, _ in found] == list(range(len(wanted)))
    # Java 0.9 has no timestamps.
    assert [record[2:] for _, record in found] == [record[2:] for record in wanted]


@pytest.mark.parametrize(
    "way",
    given([way for way in WAYS if way.release > "3" and way.mechanism.startswith("SCRAM")]),
)
def test_a_wrong_password_is_called_so(
    secured: SecuredBroker, drivers: Drivers, way: Way, topic: str
) -> None:
    driver = drivers.get(way)
    driver.settings = settings_of(secured, way, "wrong")

    with pytest.raises(Refused, match="invalid credentials with SASL mechanism") as refused:
        driver.produce(secured.bootstrap_of(way.protocol), topic, records()[:1], codec="none")

    assert refused.value.code == SASL_AUTHENTICATION_FAILED
