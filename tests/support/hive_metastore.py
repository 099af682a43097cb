"""Hive's metastore in a process of its own, with its tables in Derby, in its folder.

Both are among the jars that PySpark carries: the metastore of Hive 2.3.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from tests.support import fetched
from tests.support.server_process import RunningProcess, ServerProcess

SOURCE = Path(__file__).parent / "hive_metastore" / "Metastore.java"


class HiveMetastore(ServerProcess):
    """The metastore. Raises `NotAvailable` where there is no Java or no PySpark."""

    READY_LINE = re.compile(r"listening on 127\.0\.0\.1:(\d+)")
    START_TIMEOUT_S = 240.0

    @property
    def uri(self) -> str:
        return f"thrift://{self.host}:{self.port}"

    def _launch(self) -> RunningProcess:
        java = fetched.runtime("java")
        pyspark = importlib.util.find_spec("pyspark")
        if pyspark is None or pyspark.origin is None:
            raise fetched.NotAvailable("PySpark is not installed")
        jars = Path(pyspark.origin).parent / "jars"
        self.data.mkdir(exist_ok=True)
        flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
        return RunningProcess(
            [java, *flags, "-cp", f"{jars}/*", str(SOURCE), str(self.data), str(self.port)],
            cwd=self.data,
            environ=os.environ,
            ready_line=self.READY_LINE,
        )

    def _ready(self, line: re.Match[str]) -> None:
        self.port = int(line[1])
