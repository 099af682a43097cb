"""Sends this package to the Python of a cluster's executors, or of a Spark Connect server.

They unpickle our readers and jobs by the names of their modules, so they must have them, and of the
same release. What is sent is one zip of the packages that a task needs, named as the driver has
them: flat from a checkout, below `triglot` from an installation. What is not ours (pyarrow, numpy,
the codecs) has to be installed there.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

DEPTH = __name__.count(".")
ROOT = Path(__file__).parents[DEPTH]
"""The folder that our outermost package is in; a zip, where this process was sent one itself."""
ABOVE = "".join(f"{name}/" for name in __name__.split(".")[: DEPTH - 1])
"""The path of the packages in `ROOT`: "" in a checkout, "triglot/" when installed."""
PACKAGES = ("client", "config", "pipeline", "protocol", "storage")
"""What is imported in a task; it needs no broker."""

SAME_TIME = (1980, 1, 1, 0, 0, 0)
"""Of every file, so that the same sources make the same bytes."""

FROM_ZIP = """\
# Loads the compiled module that lies beside this one in a zip, out of a file for a moment, for the
# system can load it from nowhere else. Raises ImportError where it was built for another Python.
import sys
import tempfile
from importlib import machinery, util


def load():
    for suffix in machinery.EXTENSION_SUFFIXES:
        try:
            data = __loader__.get_data(__file__.removesuffix(".py") + suffix)
        except OSError:
            continue
        with tempfile.NamedTemporaryFile(suffix=suffix) as file:
            file.write(data)
            file.flush()
            spec = util.spec_from_file_location(__name__, file.name)
            module = util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return module
    raise ImportError(f"no build of {__name__} for this Python", name=__name__)


sys.modules[__name__] = load()
"""


def ship(spark: SparkSession) -> Path | None:
    """Make our modules importable in the tasks of this session; the zip that was sent.

    To be called before `pipeline.source.register`, for Spark keeps with a data source what workers
    had been sent by then. None in local mode, where tasks run beside the driver. Again is harmless:
    the name of the zip tells its content. It lies on this machine until the process ends, for
    executors may be started, and then fetch it, at any time.
    """
    if "connect" in type(spark).__module__:
        path = _written()
        spark.addArtifacts(str(path), pyfile=True)
        return path
    context = spark.sparkContext
    if context.master == "local" or str(context.master).startswith("local["):
        return None
    path = _written()
    context.addPyFile(str(path))
    return path


def archive() -> bytes:
    """The zip: every module of `PACKAGES`, and the compiled ones of this machine."""
    if ROOT.is_file():
        return ROOT.read_bytes()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as into:
        for name, data in sorted(_files()):
            into.writestr(zipfile.ZipInfo(name, SAME_TIME), data, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _files() -> Iterator[tuple[str, bytes]]:
    """(name in the zip, content)."""
    if ABOVE:
        yield f"{ABOVE}__init__.py", (ROOT / ABOVE / "__init__.py").read_bytes()
    for package in PACKAGES:
        for path in (ROOT / ABOVE / package).rglob("*"):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix == ".py":
                yield name, path.read_bytes()
            elif path.suffix == ".so":
                yield name, path.read_bytes()
                module = path.with_name(path.name.partition(".")[0] + ".py")
                yield module.relative_to(ROOT).as_posix(), FROM_ZIP.encode()


def _written() -> Path:
    """The zip as a file, the same one while nothing changes."""
    data = archive()
    path = scratch.folder() / f"triglot-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    if not path.exists():
        path.write_bytes(data)
    return path
