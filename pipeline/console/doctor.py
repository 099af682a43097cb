"""Checks of all that a pipeline needs, one finding after the other, each by really trying.

Nothing is changed: a broker is asked, Spark is started only when that is wanted.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pipeline.console import preflight
from pipeline.errors import CodecMissing, Failure, NotInstalled, exit_code
from pipeline.spark import java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from client.connection import Connection
    from pipeline.session import Where

PYTHON = (3, 11)
SAMPLE = b"the same again, " * 64
"""What each codec has to give back unchanged."""
TIMEOUT_S = 5.0
VALUES = {
    "avro": (("pandas", (2, 2)), ("fastavro", (1, 9))),
    "json": (("pandas", (2, 2)),),
    "protobuf": (("pandas", (2, 2)), ("google.protobuf", (6, 30)), ("grpc_tools", (1, 70))),
}
"""The packages that columns of values want, by their format, and the oldest that will do."""


class Finding(NamedTuple):
    """One thing: what was found, or what is wrong with it."""

    name: str
    found: str
    exit: int = 0
    """The exit code of what is wrong; 0 if nothing is."""

    def line(self) -> str:
        """For people."""
        return f"{'ok  ' if not self.exit else 'FAIL'}  {self.name:15} {self.found}"


class Wanted(NamedTuple):
    """What is to be looked at besides what every pipeline needs."""

    servers: str | None = None
    command_config: str | None = None
    session: bool = False
    value: str | None = None
    """The format that values become columns of."""
    registry: str | None = None
    registry_config: str | None = None


def examine(where: Where, wanted: Wanted) -> Iterator[Finding]:
    """Everything, the quickest first."""
    yield _tried("Python", _python)
    if where.remote is None:
        yield _tried("Java", _java)
    for package, oldest in preflight.PACKAGES:
        yield _tried(package, partial(_package, package, oldest))
    if where.remote is not None:
        yield _tried("Spark Connect", partial(_remote, where.remote))
    for codec in _codecs():
        yield _tried(f"codec {codec}", partial(_codec, codec))
    yield _tried("record loops", _record_loops)
    if wanted.servers is not None:
        yield _tried("broker", partial(_broker, wanted.servers, wanted.command_config))
    for package, oldest in VALUES.get(wanted.value or "", ()):
        yield _tried(package, partial(_package, package, oldest, "pipeline-values"))
    if wanted.registry is not None:
        yield _tried("registry", partial(_registry, wanted.registry, wanted.registry_config))
    if wanted.session or wanted.value == "avro":
        yield _tried("Spark session", partial(_session, where))
    if wanted.value == "avro":
        yield _tried("Spark's Avro", partial(_avro, where))


def _tried(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, look())
    except Failure as failure:
        return Finding(name, str(failure), exit_code(failure))


def _python() -> str:
    found = platform.python_version()
    if sys.version_info < PYTHON:
        raise NotInstalled(f"{found}, wanted is {PYTHON[0]}.{PYTHON[1]} or newer")
    return f"{found} at {sys.executable}"


def _java() -> str:
    found = java.find(os.environ)
    return f"{found.version} at {found.executable} (by {found.where})"


def _package(package: str, oldest: tuple[int, ...], extra: str = "pipeline") -> str:
    found = preflight.check_package(package, oldest, extra)
    # A package can be there and still not load: built for another machine, or half removed.
    try:
        __import__(package)
    except Exception as error:
        raise NotInstalled(f"{package} {found} cannot be imported: {error}") from None
    return found


def _remote(url: str) -> str:
    preflight.check_remote(url)
    return f"a server answers at {url}"


def _codecs() -> tuple[str, ...]:
    from protocol.records import compression

    return compression.NAMES[1:]


def _codec(name: str) -> str:
    from protocol.records import compression

    codec = compression.NAMES.index(name)
    try:
        packed = compression.compress(codec, SAMPLE)
        back = compression.decompress(codec, packed, limit=len(SAMPLE))
    except ImportError as error:
        raise CodecMissing(f"{error}: pip install triglot") from None
    if bytes(back) != SAMPLE:
        raise NotInstalled(f"{len(SAMPLE)} bytes do not come back as they were")
    return f"{len(SAMPLE)} bytes to {len(packed)} and back"


def _record_loops() -> str:
    try:
        from protocol.records import _loops  # noqa: F401
    except ImportError:
        return "in Python: right as well, and slower (there was no C compiler)"
    return "compiled"


def _broker(servers: str, command_config: str | None) -> str:
    from client.cluster import CLIENT_ID
    from client.routing import Router
    from client.security import read_client_security

    security = None if command_config is None else read_client_security(command_config)
    router = Router(servers, timeout_s=TIMEOUT_S, client_id=CLIENT_ID, security=security)
    try:
        topics = router.patiently(lambda: router.learn(None))
        connection = router.any()
        parts = [
            f"{connection.address} answers",
            f"cluster {router.cluster_id}" if router.cluster_id else "older than cluster ids",
            _versions(connection),
            f"{len(topics):,} topics",
        ]
    finally:
        router.close()
    return ", ".join(parts)


def _versions(connection: Connection) -> str:
    if not connection.tells_versions:
        return "of Kafka 0.8 or 0.9"
    from protocol.messages.fetch import FetchRequest
    from protocol.messages.produce import ProduceRequest

    told = connection.versions
    ends = {
        name: told.get(kind.key)
        for name, kind in (("Produce", ProduceRequest), ("Fetch", FetchRequest))
    }
    return ", ".join(f"{name} v{end[0]}-v{end[1]}" for name, end in ends.items() if end is not None)


def _session(where: Where) -> str:
    from pipeline.session import session

    began = time.monotonic()
    with session(master=where.master, remote=where.remote, conf=where.conf) as spark:
        ready = time.monotonic()
        counted = spark.range(1000).selectExpr("sum(id)").collect()[0][0]
        done = time.monotonic()
        version = spark.version
    return (
        f"Spark {version} started in {ready - began:.1f} s, "
        f"summed 1,000 numbers to {counted:,} in {done - ready:.1f} s"
    )


def _registry(url: str, config: str | None) -> str:
    from pipeline.values.registry import Registry, properties

    Registry(url, {} if config is None else properties(config)).check()
    return f"{url} answers"


def _avro(where: Where) -> str:
    from pipeline.session import session
    from pipeline.values.avro import refuse_without_package

    with session(master=where.master, remote=where.remote, conf=where.conf) as spark:
        try:
            from pyspark.sql.avro.functions import from_avro

            values = spark.sql("SELECT unhex('d00f') AS value")
            decoded = values.select(from_avro("value", '"int"')).collect()[0][0]
        except Exception as error:
            refuse_without_package(error)
            raise
    return f"decodes an int: {decoded:,}"
