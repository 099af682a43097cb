"""The Python that Spark starts on this machine for its workers.

Spark puts PySpark first on their path as an archive (python/lib/pyspark.zip). Python keeps nothing
of what it has compiled out of an archive, so each process compiles some 200 modules anew: 0.7
seconds of CPU, and a first query has five such processes, a stream one more each time. Where the
same PySpark is installed, they are to import that.
"""

from __future__ import annotations

import os
import shlex
import site
import sys
from importlib.util import find_spec
from pathlib import Path

WITHOUT_ARCHIVES = """#!/bin/sh
# The interpreter that triglot runs in, without the archives that Spark puts on its path.
set -f
IFS=:
path=
for one in $PYTHONPATH; do
    case $one in */pyspark.zip | */py4j-*-src.zip) ;; *) path=$path:$one ;; esac
done
PYTHONPATH=${{path#:}} exec {python} "$@"
"""


def worker_python(folder: Path) -> str:
    """The command for `PYSPARK_PYTHON`: this interpreter, by a script that is made in `folder`; by
    itself where PySpark is not installed in it, or SPARK_HOME names another Spark, or nothing in
    the folder may be executed."""
    if os.name != "posix" or "SPARK_HOME" in os.environ or not _is_installed():
        return sys.executable
    script = folder / "python"
    if not script.exists():
        script.write_text(WITHOUT_ARCHIVES.format(python=shlex.quote(sys.executable)))
        script.chmod(0o755)
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _is_installed() -> bool:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return False
    return str(Path(found.origin).parents[1]) in {
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
