"""Real clients with GSSAPI and tickets of a KDC.

Java 0.9 sends its token as the first frame; 0.10 names the mechanism first; from 1.0 on tokens
stand in SaslAuthenticate. The wheels of confluent-kafka are built without GSSAPI: librdkafka is
that of Debian, in kcat.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from config.jaas import KRB5_LOGIN_MODULE
from tests.clients.available import MARKS, end_of_test
from tests.clients.drivers.old_program_driver import DRIVERS
from tests.clients.records import FIRST_TIMESTAMP_MS, Record
from tests.support.certificates import PASSWORD
from tests.support.fetched import NotAvailable
from tests.support.kerberos import REALM, KerberosBroker, Realm, realm_with_broker
from tests.support.secured import USERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# The first run on a machine fetches every client.
pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

VALUES = [b"%d" % number * 1000 for number in range(20)]
KCAT_TIMEOUT_S = 30


class Site(NamedTuple):
    realm: Realm
    broker: KerberosBroker
    alice: Path
    """The keytab of alice, whose ticket is in the default cache."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("kerberos")
    with realm_with_broker(folder) as (realm, broker), pytest.MonkeyPatch.context() as environ:
        keytab = realm.keytab("alice", "alice", new_keys=False)
        login = folder / "login.conf"
        login.write_text(f"KafkaClient {{ {java_login(keytab)} }};\n")
        environ.setenv("KRB5CCNAME", str(realm.kinit("alice", USERS["alice"])))
        environ.setenv(
            "JAVA_TOOL_OPTIONS",
            f"-Djava.security.krb5.conf={realm.config} "
            # Releases before 0.10.2 have no sasl.jaas.config.
            f"-Djava.security.auth.login.config={login}",
        )
        yield Site(realm, broker, keytab)


def java_login(keytab: Path) -> str:
    return (
        f"{KRB5_LOGIN_MODULE} required useKeyTab=true storeKey=true doNotPrompt=true "
        f'keyTab="{keytab}" principal="alice@{REALM}";'
    )


def with_kafka_python(broker: KerberosBroker, protocol: str, topic: str) -> list[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer, KafkaProducer

    given: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_of(protocol),
        "security_protocol": protocol,
        "ssl_cafile": str(broker.authority.certificate),
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }
    producer = KafkaProducer(**given)
    for value in VALUES:
        producer.send(topic, value).get(timeout=20)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **given)
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    return found


def with_aiokafka(broker: KerberosBroker, protocol: str, topic: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    given: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_of(protocol),
        "security_protocol": protocol,
        "ssl_context": broker.context(),
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }

    async def run() -> list[bytes]:
        async with AIOKafkaProducer(**given) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **given) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    return asyncio.run(asyncio.wait_for(run(), 60))


def with_kcat(broker: KerberosBroker, protocol: str, topic: str) -> list[bytes]:
    kcat = shutil.which("kcat")
    if kcat is None:
        end_of_test("kerberos", "there is no kcat")
    command = [kcat, "-b", broker.bootstrap_of(protocol), "-t", topic]
    for option in (
        f"security.protocol={protocol}",
        f"ssl.ca.location={broker.authority.certificate}",
        "sasl.mechanism=GSSAPI",
        "sasl.kerberos.service.name=kafka",
        "sasl.kerberos.kinit.cmd=true",  # the ticket is there
    ):
        command += ["-X", option]

    def run(*words: str, given: bytes = b"") -> bytes:
        ended = subprocess.run(
            [*command, *words],
            input=given,
            capture_output=True,
            timeout=KCAT_TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout

    run("-P", given=b"\n".join(VALUES))
    return run("-C", "-e", "-q", "-o", "beginning").splitlines()


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("use", [with_kafka_python, with_aiokafka, with_kcat])
def test_records_come_back_as_they_were_sent(
    site: Site, use: Callable[[KerberosBroker, str, str], list[bytes]], protocol: str, topic: str
) -> None:
    assert use(site.broker, protocol, topic) == VALUES


def of_java(release: str, protocol: str) -> Any:
    marks = [*MARKS["java"], pytest.mark.long]
    return pytest.param("java", release, protocol, id=f"{release}-{protocol}", marks=marks)


def of_python(release: str) -> Any:
    return pytest.param("kafka-python", release, "SASL_PLAINTEXT", id=f"kafka-python-{release}")


@pytest.mark.parametrize(
    ("library", "release", "protocol"),
    [
        of_java("0.9.0.1", "SASL_PLAINTEXT"),
        of_java("0.9.0.1", "SASL_SSL"),
        of_java("0.10.0.1", "SASL_PLAINTEXT"),
        of_java("0.10.2.2", "SASL_SSL"),
        of_java("2.8.2", "SASL_SSL"),
        of_java("4.4.0", "SASL_PLAINTEXT"),
        of_java("4.4.0", "SASL_SSL"),
        of_python("1.4.7"),
        of_python("2.0.2"),
    ],
)
def test_records_come_back_to_clients_of_every_age(
    site: Site, library: str, release: str, protocol: str, topic: str, tmp_path: Path
) -> None:
    try:
        driver = DRIVERS[library](release, tmp_path)
    except NotAvailable as reason:
        end_of_test("java" if library == "java" else "python", f"{library} {release}: {reason}")
    driver.settings = settings_of(site, library, release, protocol)
    bootstrap = site.broker.bootstrap_of(protocol)
    wanted = [
        Record(0, FIRST_TIMESTAMP_MS + number, b"%d" % number, value)
        for number, value in enumerate(VALUES)
    ]
    try:
        driver.produce(bootstrap, topic, wanted, codec="none")
        found = driver.consume(bootstrap, topic, {0: len(wanted)})[0]
    finally:
        driver.program.close()
    # Java 0.9 has no timestamps.
    assert [record[2:] for _, record in found] == [record[2:] for record in wanted]


def settings_of(site: Site, library: str, release: str, protocol: str) -> dict[str, str]:
    """What the client is told, in the words of its library."""
    if library == "kafka-python":
        return {
            "security_protocol": protocol,
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_service_name": "kafka",
        }
    settings = {"security.protocol": protocol, "sasl.kerberos.service.name": "kafka"}
    if protocol.endswith("SSL"):
        settings["ssl.truststore.type"] = "PKCS12"
        settings["ssl.truststore.location"] = str(site.broker.authority.truststore)
        settings["ssl.truststore.password"] = PASSWORD
    if not release.startswith(("0.9", "0.10.0")):
        # The words of a command stand between spaces; tabs will do.
        settings["sasl.jaas.config"] = java_login(site.alice).replace(" ", "\t")
    return settings
