"""Programs of other people that some tests run, fetched once into a cache of the checkout.

Maven resolves jars by the coordinates of a `pom.xml`, npm packages, Go modules and Rust
crates by their lock files, and pip old Python clients by pinned requirements. Each result lies in a
folder named by the digest of its inputs, so a changed input is fetched anew and an interrupted
fetch is never taken for a whole one.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

TESTS = Path(__file__).resolve().parents[1]

#: The first fetch of all jars takes some ten seconds on an ordinary line.
FETCH_TIMEOUT_S = 240.0

#: Maven and javac end before what the second compiler makes of them would pay.
SHORT_LIFE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

#: A hundred crates are compiled in a minute or two on two cores.
BUILD_TIMEOUT_S = 900.0


class NotAvailable(Exception):
    """A runtime or a download is missing on this machine. The text says which and why."""


def cache_dir() -> Path:
    """Where fetched things lie; `TEST_CACHE_DIR` moves it out of the checkout."""
    return Path(os.environ.get("TEST_CACHE_DIR", TESTS / "clients" / ".cache"))


def runtime(name: str) -> str:
    """The path of a program. Raises `NotAvailable` when it is not installed."""
    path = shutil.which(name)
    if path is None:
        raise NotAvailable(f"{name} is not installed")
    return path


def jars(pom: Path, *, properties: Mapping[str, str] | None = None) -> Path:
    """The folder with every run-time jar that `pom` asks for, with these Maven properties."""
    defines = [f"-D{name}={value}" for name, value in sorted((properties or {}).items())]
    with made_once("jars", [pom.read_bytes(), *map(str.encode, defines)]) as (folder, missing):
        if missing:
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
            _maven(pom, *defines, *goal, f"-DoutputDirectory={folder}")
    return folder


def artifacts(pom: Path) -> Path:
    """The folder with every artifact that `pom` names, without what they ask for: several versions
    of one artifact can be had so."""
    with made_once("artifacts", [pom.read_bytes()]) as (folder, missing):
        if missing:
            _maven(pom, "dependency:copy", f"-DoutputDirectory={folder}")
    return folder


def unpacked(pom: Path) -> Path:
    """The folder with the content of every archive that `pom` asks for."""
    with made_once("unpacked", [pom.read_bytes()]) as (folder, missing):
        if missing:
            goal = ["dependency:unpack-dependencies", "-DincludeScope=runtime"]
            # What it has unpacked it would remember beside the pom.
            goal.append(f"-DmarkersDirectory={folder}/markers")
            _maven(pom, *goal, f"-DoutputDirectory={folder}")
    return folder


def classes(*sources: Path, classpath: Path) -> Path:
    """The folder with the classes of every `.java` file under the folders `sources`."""
    files = [file for folder in sources for file in sorted(folder.rglob("*.java"))]
    inputs = [classpath.name.encode(), *(file.read_bytes() for file in files)]
    with made_once("classes", inputs) as (folder, missing):
        if missing:
            folder.mkdir()
            command = [runtime("javac"), *(f"-J{flag}" for flag in SHORT_LIFE)]
            command += ["-Xlint:all,-processing", "-Werror", "--release", "11"]
            command += ["-encoding", "UTF-8", "-cp", f"{classpath}/*", "-d", str(folder)]
            ended = _run([*command, *(str(file.resolve()) for file in files)], cwd=folder)
            # Not a lack of this machine: our own source is wrong.
            assert ended.returncode == 0, ended.stderr
    return folder


def python_packages(requirements: Path, patch: Callable[[Path], None]) -> Path:
    """A folder for PYTHONPATH with what the file `requirements` names, changed by `patch`.

    It lies beside this environment and not in it, so that several releases of one library can
    be had. Source distributions are built with the setuptools of this environment.
    """
    inputs = [requirements.read_bytes(), Path(inspect.getfile(patch)).read_bytes()]
    # Some of it is compiled for one Python.
    inputs.append(sys.version.encode())
    with made_once("python", inputs) as (folder, missing):
        if missing:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
            command += ["--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
            command += ["--no-compile", "--target", str(folder)]
            _fetch([*command, "--requirement", str(requirements.resolve())], cwd=folder.parent)
            patch(folder)
    return folder


def librdkafka(release: str) -> Path:
    """The shared library out of a wheel of confluent-kafka. `release` is that of the wheel.

    Wheels of every release were made for Python 3.9; the library in them does not depend on it.
    """
    with made_once("librdkafka", [release.encode()]) as (folder, missing):
        if missing:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
            command += ["--disable-pip-version-check", "--no-deps", "--no-compile"]
            command += ["--only-binary=:all:", "--python-version", "3.9", "--target", str(folder)]
            _fetch([*command, f"confluent-kafka=={release}"], cwd=folder.parent)
    (library,) = folder.glob("confluent_kafka.libs/librdkafka*")
    return library


def go_program(module: Path, package: str) -> Path:
    """The program of a package in a Go module, whose `go.sum` pins what it takes."""
    inputs = [file.read_bytes() for file in sorted(module.rglob("*")) if file.is_file()]
    with made_once("go", [package.encode(), *inputs]) as (folder, missing):
        if missing:
            folder.mkdir()
            command = [runtime("go"), "build", "-mod=readonly", "-buildvcs=false", "-o"]
            _fetch([*command, f"{folder}/", f"./{package}"], cwd=module)
    return folder / package


def go_tests(module: Path, package: str) -> Path:
    """The tests that a package of another module brings, as a program; `go.sum` pins it."""
    inputs = [package.encode(), *((module / name).read_bytes() for name in ("go.mod", "go.sum"))]
    with made_once("go-tests", inputs) as (folder, missing):
        if missing:
            folder.mkdir()
            command = [runtime("go"), "test", "-c", "-mod=readonly", "-buildvcs=false", "-o"]
            _fetch([*command, str(folder / "tests"), package], cwd=module)
    return folder / "tests"


def go_command(module: Path, package: str) -> Path:
    """The program of a package of another module, pinned by the `go.sum` of `module`."""
    inputs = [package.encode(), *((module / name).read_bytes() for name in ("go.mod", "go.sum"))]
    with made_once("go-commands", inputs) as (folder, missing):
        if missing:
            folder.mkdir()
            command = [runtime("go"), "build", "-mod=readonly", "-buildvcs=false", "-o"]
            _fetch([*command, f"{folder}/", package], cwd=module, timeout_s=BUILD_TIMEOUT_S)
    return folder / package.rpartition("/")[2]


def rust_program(crate: Path, name: str) -> Path:
    """A program of a Rust crate, whose `Cargo.lock` pins what it takes."""
    files = [crate / "Cargo.toml", crate / "Cargo.lock", *sorted((crate / "src").rglob("*.rs"))]
    with made_once("rust", [file.read_bytes() for file in files]) as (folder, missing):
        if missing:
            command = [runtime("cargo"), "build", "--quiet", "--locked", "--target-dir"]
            _fetch([*command, str(folder)], cwd=crate, timeout_s=BUILD_TIMEOUT_S)
    return folder / "debug" / name


def node_modules(package: Path) -> Path:
    """A folder with the packages that the lock file in the folder `package` names."""
    inputs = [package / "package.json", package / "package-lock.json"]
    with made_once("node", [file.read_bytes() for file in inputs]) as (folder, missing):
        if missing:
            folder.mkdir()
            for file in inputs:
                shutil.copy(file, folder)
            command = [runtime("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            _fetch(command, cwd=folder)
    return folder / "node_modules"


def debian_package(name: str) -> Path:
    """The folder with the files of a Debian package, which is not installed: nothing of it starts
    by itself, and none of its scripts runs."""
    with made_once("debian", [name.encode()]) as (folder, missing):
        if missing:
            folder.mkdir()
            runtime("dpkg-deb")
            download = f"{runtime('apt-get')} download -qq {name}"
            # Where no list of packages was ever fetched, that comes first.
            _fetch(["sh", "-c", f"{download} || (apt-get update -qq && {download})"], cwd=folder)
            (package,) = folder.glob("*.deb")
            _fetch(["dpkg-deb", "-x", str(package), str(folder)], cwd=folder)
            package.unlink()
    return folder


def debian_program(name: str) -> Path:
    """The same for a program that needs more than a bare system has: with the packages that it
    depends on and that are not installed here. Its libraries are in `usr/lib/*-linux-gnu`."""
    with made_once("debian-program", [name.encode()]) as (folder, missing):
        if missing:
            folder.mkdir()
            runtime("dpkg-deb")
            simulated = [runtime("apt-get"), "install", "-s", "--no-install-recommends", name]
            ended = _run(simulated, cwd=folder)
            if ended.returncode != 0:
                _fetch(["apt-get", "update", "-qq"], cwd=folder)
                ended = _run(simulated, cwd=folder)
            packages = re.findall(r"^Inst (\S+)", ended.stdout, re.MULTILINE)
            _fetch(["apt-get", "download", "-qq", *sorted({name, *packages})], cwd=folder)
            for package in sorted(folder.glob("*.deb")):
                _fetch(["dpkg-deb", "-x", str(package), str(folder)], cwd=folder)
                package.unlink()
    return folder


@contextmanager
def made_once(kind: str, inputs: Sequence[bytes]) -> Iterator[tuple[Path, bool]]:
    """A folder for these inputs, and whether the caller has to fill it.

    A file lock keeps two test runs from filling it at the same time; a fill that fails leaves
    nothing behind.
    """
    digest = hashlib.sha256()
    for data in inputs:
        digest.update(len(data).to_bytes(8, "big") + data)
    folder = cache_dir() / kind / digest.hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder.with_suffix(".done")
        if done.exists():
            yield folder, False
            return
        shutil.rmtree(folder, ignore_errors=True)
        yield folder, True
        done.touch()


def _maven(pom: Path, *words: str) -> None:
    command = [runtime("mvn"), "--batch-mode", "--quiet", "--file", str(pom.resolve()), *words]
    options = " ".join([*SHORT_LIFE, os.environ.get("MAVEN_OPTS", "")])
    _fetch(command, cwd=pom.parent, environ={**os.environ, "MAVEN_OPTS": options})


def _fetch(
    command: Sequence[str],
    *,
    cwd: Path,
    timeout_s: float = FETCH_TIMEOUT_S,
    environ: Mapping[str, str] | None = None,
) -> None:
    ended = _run(command, cwd=cwd, timeout_s=timeout_s, environ=environ)
    if ended.returncode != 0:
        last_lines = (ended.stdout + ended.stderr)[-2000:]
        raise NotAvailable(f"{command[0]} ended with {ended.returncode}: {last_lines}")


def _run(
    command: Sequence[str],
    *,
    cwd: Path,
    timeout_s: float = FETCH_TIMEOUT_S,
    environ: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env=environ,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"{command[0]} did not end within {timeout_s} s") from None
