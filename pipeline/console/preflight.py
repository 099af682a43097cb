"""Checks of a machine before a JVM is started: Python packages and their versions, Java.

Topics, paths and states are checked by the jobs themselves.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
from importlib import metadata
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pipeline.errors import NotInstalled, SparkFailed, WrongUse
from pipeline.session import active, under_spark_submit
from pipeline.spark import java

if TYPE_CHECKING:
    from pipeline.session import Where

PACKAGES = (("pyspark", (4, 2)), ("pyarrow", (18,)), ("numpy", (2,)))
"""The extra `pipeline`: what must be there, and the oldest that will do."""
CONNECT_PACKAGES = ("pandas", "grpc", "grpc_status", "google.rpc", "zstandard")
"""What Spark's own client for Spark Connect imports."""
CONNECT_PORT = 15002
CONNECT_TIMEOUT_S = 3.0
_STANDALONE = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})")


def check(where: Where) -> None:
    """Raises NotInstalled, NoJava, WrongUse, and SparkFailed where no Spark answers."""
    for package, oldest in PACKAGES:
        check_package(package, oldest)
    if where.remote is not None:
        if where.master is not None:
            raise WrongUse("--master and --remote exclude each other")
        check_remote(where.remote)
    elif active() is None and not under_spark_submit():
        java.find(os.environ)
        check_master(where.master or where.conf.get("spark.master", ""))


DISTRIBUTIONS = {"google.protobuf": "protobuf", "grpc_tools": "grpcio-tools"}
"""What modules are called where they are installed from, if that is not their name."""


def check_package(package: str, oldest: tuple[int, ...], extra: str = "pipeline") -> str:
    """The version that is installed; `extra` is what brings it. Raises NotInstalled."""
    found = version(package)
    wanted = ".".join(map(str, oldest))
    if found is None:
        raise NotInstalled(
            f"the Python package {package} is not installed: pip install triglot[{extra}]"
        )
    if found and _numbers(found) < oldest:
        raise NotInstalled(
            f"{package} {found} is too old, {wanted} or newer is wanted: "
            f"pip install --upgrade triglot[{extra}]"
        )
    return found


def version(package: str) -> str | None:
    """None if it cannot be imported; empty if it does not tell."""
    if not importable(package):
        return None
    # Spark's client without the JVM part is another distribution of the same module.
    for name in (DISTRIBUTIONS.get(package, package), f"{package}-client"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def importable(module: str) -> bool:
    """Whether a module is there; it is not imported, those that it is in are."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def check_remote(url: str) -> None:
    """Raises WrongUse, NotInstalled, SparkFailed. Spark's own client tries for ten minutes."""
    parts = urlsplit(url)
    try:
        port = parts.port or CONNECT_PORT
    except ValueError:
        port = 0
    if parts.scheme != "sc" or not parts.hostname or not port:
        raise WrongUse(f"--remote wants sc://HOST:PORT, found '{url}'")
    absent = [module for module in CONNECT_PACKAGES if not importable(module)]
    if absent:
        raise NotInstalled(
            f"Spark Connect needs the Python packages {', '.join(absent)}: "
            "pip install 'pyspark[connect]'"
        )
    refused = _refused(parts.hostname, port)
    if refused is not None:
        raise SparkFailed(f"no Spark Connect server answers at {parts.hostname}:{port}: {refused}")


def check_master(url: str) -> None:
    """Raises SparkFailed where none of the masters in spark://HOST:PORT,HOST:PORT answers. Spark
    itself tries for a minute, and then says something else. Other masters are left to it."""
    places = _STANDALONE.findall(url) if url.startswith("spark://") else []
    reasons = [_refused(host.strip("[]"), int(port)) for host, port in places]
    if reasons and None not in reasons:
        raise SparkFailed(f"no Spark master answers at {url}: {reasons[0]}")


def _refused(host: str, port: int) -> str | None:
    """Why nothing can be connected to there; None if something can."""
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
