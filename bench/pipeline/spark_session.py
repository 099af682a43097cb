"""One Spark session that takes the loads in turn: a process of its own, whose family is measured.

    python -m bench.pipeline.spark_session LOAD FROM TO TOPIC,... ROUNDS JARS FOLDER REGISTRY

prints what it is at, and on the last line what each way took, as JSON. The JVM has its defaults:
what is compared with it must not gain by a JVM that does not optimise.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from bench.pipeline.spark_jobs import Ways, medians
from pipeline.source import register

if TYPE_CHECKING:
    from collections.abc import Callable

PARQUET, RECORDS, BATCHES, CONNECTOR = "parquet", "records", "batches", "connector"
OURS = "triglot"


def session(jars: str, folder: Path) -> SparkSession:
    made = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.jars", jars)
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    register(made)
    return made


def loads(ways: Ways) -> dict[str, dict[str, Callable[[], None]]]:
    """The ways that each load compares."""
    return {
        "read": {
            PARQUET: ways.read_parquet,
            RECORDS: ways.read_records,
            BATCHES: ways.read_batches,
            CONNECTOR: ways.read_connector,
        },
        "mirror": {OURS: ways.mirror, CONNECTOR: ways.reproduce},
        "archive": {OURS: ways.archive, CONNECTOR: ways.archive_connector},
        "values": {OURS: ways.values, CONNECTOR: ways.values_connector},
        "small": {
            f"archive {OURS}": ways.archive,
            f"archive {CONNECTOR}": ways.archive_connector,
            f"read {OURS}": ways.read_records,
            f"read {CONNECTOR}": ways.read_connector,
            f"mirror {OURS}": ways.mirror,
            f"mirror {CONNECTOR}": ways.reproduce,
        },
    }


def main() -> None:
    load, servers, other, topics, rounds, jars, place, registry = sys.argv[1:]
    folder = Path(place)
    spark = session(jars, folder)
    ways = Ways(spark, folder, servers, other, tuple(topics.split(",")), registry)
    if load == "read":
        ways.parquet()
    found = medians(loads(ways)[load], int(rounds))
    if load in ("mirror", "small"):
        ways.check_mirror()
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
