"""Spark's official connector to Kafka, fetched by Maven for the sessions of tests."""

from __future__ import annotations

import functools
from pathlib import Path

from tests.support import fetched

POM = Path(__file__).parent / "spark_connector" / "pom.xml"


@functools.cache
def _jars_or_reason() -> tuple[Path, ...] | fetched.NotAvailable:
    try:
        return tuple(sorted(fetched.jars(POM).glob("*.jar")))
    except fetched.NotAvailable as reason:
        return reason


def connector_jars() -> tuple[Path, ...]:
    """The jars that pyspark lacks. Raises `NotAvailable`, in later calls at once."""
    found = _jars_or_reason()
    if isinstance(found, fetched.NotAvailable):
        raise found
    return found


def spark_jars() -> str:
    """The setting `spark.jars` of a session that may use it; "" where it can't be had."""
    try:
        return ",".join(map(str, connector_jars()))
    except fetched.NotAvailable:
        return ""
