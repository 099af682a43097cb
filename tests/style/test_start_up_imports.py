"""Modules that a start does not import: each is imported when it is first needed, not before.

Milliseconds of CPU that these took, each in a fresh interpreter: numpy 120, importlib.metadata
37, the crc32c package (not its extension alone) 42, structlog 17, json 7.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from broker.network.dispatch import HANDLERS
from protocol.registry import APIS
from tests.style.sources import CHECKOUT, FLOORS

if TYPE_CHECKING:
    from pathlib import Path

LATER = (
    *("cramjam", "crcmod", "lz4", "snappy", "zstandard", "gzip"),
    *("jinja2", "starlette", "uvicorn", "broker.console"),
    *("client", "structlog", "rich", "numpy", "pyarrow", "pyspark"),
    *("importlib.metadata", "argparse", "dataclasses", "difflib", "json", "tomllib", "unittest"),
    "uuid",
    *("cryptography", "hashlib", "hmac", "ipaddress", "jwt", "gssapi"),
    *("xml", "urllib.request", "http", "email", "multiprocessing", "sqlite3"),
)

MODULES_MAX = 309
"""Modules of ours that a start imports."""


@pytest.fixture(scope="module")
def imported() -> frozenset[str]:
    """Every module in a process that has imported the server and done nothing else."""
    program = "import sys, broker.server; print(*sys.modules, sep='\\n')"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    return frozenset(run.stdout.split())


def test_the_command_line_imports_no_client_and_no_broker_before_they_are_needed() -> None:
    program = "import sys; from tools.cli import main; main(['version']); print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    loaded = run.stdout.splitlines()[-1].split()
    assert not {"client", "broker.server", "asyncio", "socket", "json", "shutil"} & set(loaded)


def test_a_start_loads_neither_compressors_nor_tables_of_characters(tmp_path: Path) -> None:
    """argparse and the look-up of a host's address would: a MiB together."""
    told = tmp_path / "imports"
    words = ["-X", "importtime", "-m", "tools", "serve", "--data", str(tmp_path / "data")]
    with told.open("w") as imports:
        broker = subprocess.Popen(
            [sys.executable, *words, "--listen", "127.0.0.1:0"],
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=imports,
        )
        assert broker.stdout is not None
        try:
            assert b"ready" in broker.stdout.readline()
        finally:
            broker.kill()  # a clean stop writes a line, which loads structlog
            broker.communicate(timeout=60)
    loaded = {line.rpartition("|")[2].strip() for line in told.read_text().splitlines()}
    assert "broker.server" in loaded
    assert not {"shutil", "bz2", "lzma", "encodings.idna", "unicodedata"} & loaded
    # The arguments of the other commands are 13 ms and half a MiB.
    assert not {"tools.certs", "tools.inspection", "tools.groups.cli", "tools.acls.cli"} & loaded


@pytest.mark.parametrize("module", LATER)
def test_importing_the_server_does_not_import(module: str, imported: frozenset[str]) -> None:
    assert module not in imported


def test_importing_the_server_imports_no_more_modules_than_it_did(imported: frozenset[str]) -> None:
    # A module of ours takes a tenth of a millisecond to half a one.
    ours = {name for name in imported if name.partition(".")[0] in FLOORS}
    assert len(ours) <= MODULES_MAX, "one more needs a reason, or is imported when it is needed"


def test_importing_the_server_imports_only_messages_that_are_served(
    imported: frozenset[str],
) -> None:
    # A declaration costs 0.4 ms; those of the other fifty APIs would cost half as much as asyncio.
    declarations = {name for name in imported if name.startswith("protocol.messages.")}
    assert declarations <= {f"protocol.messages.{APIS[key].module}" for key in HANDLERS}
