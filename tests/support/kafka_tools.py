"""Apache Kafka's own command line tools over the files of a data directory.

tree = run_tool(KAFKA_3_9, METADATA_SHELL, "--snapshot", log, "tree", "/image", folder=tmp_path)
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka_release import Release

STORAGE_TOOL = "kafka.tools.StorageTool"
METADATA_SHELL = "org.apache.kafka.shell.MetadataShell"

TIMEOUT_S = 120


class Ended(NamedTuple):
    """One run of a tool."""

    code: int
    out: str
    err: str
    #: What it logged as WARN or worse.
    logged: str


def run_tool(release: Release, tool: str, *words: str, folder: Path, typed: str = "") -> Ended:
    """Run the class `tool` with these words in the directory `folder`; `typed` is its input. Raises
    `NotAvailable`."""
    (folder / "tool.log").unlink(missing_ok=True)
    java = release.java(folder, "tool", quiet=True)
    ended = subprocess.run(
        [*java, tool, *words],
        cwd=folder,
        input=typed,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=TIMEOUT_S,
    )
    logged = (folder / "tool.log").read_text(encoding="utf-8")
    return Ended(ended.returncode, ended.stdout, ended.stderr, logged)
