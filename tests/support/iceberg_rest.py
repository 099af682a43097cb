"""An Iceberg REST catalog in a process of its own: the server that Iceberg itself is tested with.

Its tables are registered in SQLite, in its folder. Hadoop's classes come from PySpark.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from tests.support import fetched
from tests.support.server_process import RunningProcess, ServerProcess

SOURCE = Path(__file__).parent / "iceberg_rest" / "RestCatalog.java"


class IcebergRest(ServerProcess):
    """The catalog. Raises `NotAvailable` where it cannot be fetched, or has no Java."""

    READY_LINE = re.compile(r"listening on 127\.0\.0\.1:(\d+)")
    START_TIMEOUT_S = 240.0

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def _launch(self) -> RunningProcess:
        java = fetched.runtime("java")
        pyspark = importlib.util.find_spec("pyspark")
        if pyspark is None or pyspark.origin is None:
            raise fetched.NotAvailable("PySpark is not installed")
        jars = fetched.jars(SOURCE.with_name("pom.xml"))
        hadoop = (Path(pyspark.origin).parent / "jars").glob("hadoop-client-*.jar")
        self.data.mkdir(exist_ok=True)
        classes = os.pathsep.join([f"{jars}/*", *map(str, hadoop)])
        flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
        return RunningProcess(
            [java, *flags, "-cp", classes, str(SOURCE), str(self.data), str(self.port)],
            cwd=self.data,
            environ=os.environ,
            ready_line=self.READY_LINE,
        )

    def _ready(self, line: re.Match[str]) -> None:
        self.port = int(line[1])
