"""The wheel for users: one name in the environment, and a command that works from any folder."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker._version import VERSION
from config import BrokerSettings
from tests.style.sources import CHECKOUT, imported_by, python_files, text, tree
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.compacted import (
    AT_ONCE,
    Table,
    folder_of,
    left_overs,
    log_bytes,
    wait_until,
)
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import GroupCaller
from tests.support.installed import (
    PACKAGES,
    built,
    copied_sources,
    environment,
    folder_of_a_user,
    install,
)
from tests.support.server_process import RunningProcess

if TYPE_CHECKING:
    from tests.style.conftest import Distribution
    from tests.support.installed import Installation

#: The first of these tests waits for three builds.
pytestmark = pytest.mark.timeout(600)

COMPILED = ("triglot/protocol/records/_loops", "triglot/protocol/_single")
"""The extension modules, which a build without a compiler lacks, and their stubs."""


ARCHIVE = "--from 127.0.0.1:1 --topic t --to lake --once"


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_a_wheel_installs_the_single_name_triglot(distribution: Distribution) -> None:
    top = {name.partition("/")[0] for name in names_in(distribution.wheel)}
    assert top == {"triglot", f"triglot-{VERSION}.dist-info"}


def test_a_wheel_holds_every_module_of_the_floors_and_nothing_else(
    distribution: Distribution,
) -> None:
    modules = {name for name in names_in(distribution.wheel) if name.startswith("triglot/")}
    modules = {name for name in modules if not name.startswith(COMPILED)}
    flat = set(python_files(*PACKAGES)) - {"tools/_launch.py"}
    own = {f"triglot/{name}" for name in ("__init__.py", "__main__.py", "py.typed")}
    own |= {f"triglot/{path}" for path in files_of_the_console()}
    assert modules == own | {f"triglot/{path}" for path in flat}


def files_of_the_console() -> set[str]:
    """What its pages are made of besides modules."""
    folder = CHECKOUT / "tools/console"
    found = (*folder.glob("static/*"), *folder.glob("templates/*"))
    assert len(found) > 5
    return {path.relative_to(CHECKOUT).as_posix() for path in found}


def test_no_module_of_a_wheel_imports_a_flat_name(distribution: Distribution) -> None:
    found = []
    with zipfile.ZipFile(distribution.wheel) as archive:
        for path in archive.namelist():
            if path.endswith((".py", ".pyi")):
                imports = imported_by(ast.parse(archive.read(path)))
                found += [f"{path}:{line}" for line, name in imports if top(name) in PACKAGES]
    assert not found


def test_a_module_of_a_wheel_differs_from_the_checkout_in_its_imports_alone(
    distribution: Distribution,
) -> None:
    with zipfile.ZipFile(distribution.wheel) as archive:
        for path in python_files(*PACKAGES):
            if path == "tools/_launch.py":
                continue
            pairs = zip(
                text(path).splitlines(),
                archive.read(f"triglot/{path}").decode().splitlines(),
                strict=True,
            )
            for here, there in pairs:
                assert here == there or here == re.sub(r"\btriglot\.(?=\w)", "", there), path


def test_no_module_names_one_of_ours_by_a_string() -> None:
    """Such a name would not be rewritten; `__package__` and `__name__` tell what it is."""
    found = []
    for path in python_files(*PACKAGES):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                first = re.match(r"(\w+)\.(\w+)", node.value)
                if node.value in BrokerSettings.KEYS:  # broker.processes
                    continue
                if first is not None and first[1] in PACKAGES and is_ours(*first.groups()):
                    found.append(f"{path}:{node.lineno}: {node.value[:60]}")
    assert not found


def is_ours(package: str, name: str) -> bool:
    return (CHECKOUT / package / name).is_dir() or (CHECKOUT / package / f"{name}.py").is_file()


def top(module: str) -> str:
    return module.partition(".")[0]


def test_the_parts_in_c_are_compiled_where_there_is_a_compiler(
    distribution: Distribution, installation: Installation
) -> None:
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None and "TEST_REQUIRE_COMPILED" not in os.environ:
        pytest.skip(f"no compiler {compiler}")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert {name + suffix for name in COMPILED} <= set(names_in(distribution.wheel))
    run = subprocess.run(
        [
            *(installation.bin / "python", "-c"),
            "from triglot.protocol.records.transcode import IMPLEMENTATION as i; print(i)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "compiled\n"


@pytest.mark.long
def test_a_wheel_without_the_parts_in_c_is_for_every_system(
    distribution: Distribution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIGLOT_PURE", "1")
    pure = built(copied_sources(tmp_path / "source"), tmp_path / "pure", "--wheel")
    assert pure.name == f"triglot-{VERSION}-py3-none-any.whl"
    names = set(names_in(pure))
    assert not {name for name in names if name.endswith((".so", ".pyd"))}
    assert {name for name in names_in(distribution.wheel) if name.endswith(".py")} <= names


def test_a_source_distribution_builds_the_same_wheel(distribution: Distribution) -> None:
    with (
        zipfile.ZipFile(distribution.wheel) as direct,
        zipfile.ZipFile(distribution.wheel_of_sdist) as of_sdist,
    ):
        assert sorted(direct.namelist()) == sorted(of_sdist.namelist())
        for name in direct.namelist():
            if not name.endswith("/RECORD"):
                assert direct.read(name) == of_sdist.read(name), name


def test_the_locks_hold_every_dependency_that_the_metadata_names(
    distribution: Distribution,
) -> None:
    wanted = required(distribution.wheel, None)
    assert locked("requirements.lock") == wanted
    assert locked("requirements-pipeline.lock") == required(distribution.wheel, "pipeline") | {
        "py4j"
    }
    assert locked("requirements-kerberos.lock") == required(distribution.wheel, "kerberos") | {
        "decorator"
    }


def test_pytest_finds_the_plugin_of_an_installation(
    installation: Installation, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(triglot, triglot_session):\n"
        "    triglot.topic('orders').create()\n"
        "    assert (triglot.topics(), triglot_session.topics()) == (['orders'], [])\n"
    )
    (tmp_path / "project").mkdir()
    run = subprocess.run(
        [installation.bin / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path],
        cwd=folder_of_a_user(tmp_path / "project"),
        env=environment(None),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in run.stdout, run.stdout + run.stderr


def required(wheel: Path, extra: str | None) -> set[str]:
    """The names that the metadata ask for, by themselves or for an extra."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"triglot-{VERSION}.dist-info/METADATA").decode()
    lines = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*(?:;(.*))?$", metadata, re.M)
    return {name for name, marker in lines if (extra or "") == of_extra(marker)}


def of_extra(marker: str) -> str:
    """The extra that a requirement belongs to; other conditions are those of platforms."""
    found = re.search(r"extra == .([\w-]+).", marker)
    return "" if found is None else found[1]


def locked(name: str) -> set[str]:
    lines = (CHECKOUT / name).read_text(encoding="utf-8").splitlines()
    return {line.partition("==")[0] for line in lines if line and not line.startswith("#")}


@pytest.fixture
def folder_with_a_config_of_its_own(tmp_path: Path) -> Path:
    return folder_of_a_user(tmp_path)


@pytest.mark.parametrize("path", [None, "."], ids=["", "PYTHONPATH=."])
@pytest.mark.parametrize("command", [["triglot"], ["python", "-m", "triglot"]], ids=" ".join)
def test_the_command_works_from_a_folder_that_has_its_own_config(
    command: list[str],
    path: str | None,
    folder_with_a_config_of_its_own: Path,
    installation: Installation,
) -> None:
    run = subprocess.run(
        [installation.bin / command[0], *command[1:], "version"],
        cwd=folder_with_a_config_of_its_own,
        env=environment(path),
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert VERSION in run.stdout
    assert run.stderr == ""


def test_importing_the_installed_name_leaves_the_path_alone(
    installation: Installation, tmp_path: Path
) -> None:
    program = "import sys; before = list(sys.path); import triglot; assert sys.path == before"
    subprocess.run([installation.bin / "python", "-c", program], cwd=tmp_path, check=True)


class InstalledBroker(BrokerProcess):
    """The command that pip installed, started in a folder of the user's."""

    def __init__(self, data: Path, program: Path, path: str | None) -> None:
        super().__init__(data, settings=AT_ONCE)
        self._program = program
        self._path = path

    def _launch(self) -> RunningProcess:
        settings = [f"--set={key}={value}" for key, value in self.settings.items()]
        return RunningProcess(
            [str(self._program), "serve", "--listen", self.bootstrap, *settings],
            cwd=self.data.parent,
            environ=environment(self._path),
            ready_line=self.READY_LINE,
        )


@pytest.mark.parametrize("path", [None, "."], ids=["", "PYTHONPATH=."])
def test_an_installed_broker_takes_gives_and_compacts_records_which_its_check_finds_sound(
    path: str | None, folder_with_a_config_of_its_own: Path, installation: Installation
) -> None:
    program = installation.bin / "triglot"
    data = folder_with_a_config_of_its_own / "data"
    with InstalledBroker(data, program, path) as broker:
        caller = Caller(broker.host, broker.port)
        caller.create_topic(
            "t", 1, cleanup_policy="compact", segment_bytes="100000", min_cleanable_dirty_ratio="0"
        )
        table = Table(caller, "t")
        table.fill(1000)
        # The process for that is a module that the broker names itself.
        wait_until(lambda: log_bytes(folder_of(broker, "t")) <= 140_000, "compaction")
        wait_until(lambda: not left_overs(folder_of(broker, "t")), "its end")
        assert table.faults() == []
        caller.socket.close()

    check = subprocess.run(
        [program, "check", str(data)],
        cwd=data.parent,
        env=environment(path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_an_installed_broker_takes_regular_expressions_of_consumers(
    distribution: Distribution, tmp_path: Path
) -> None:
    """With nothing but what `pip install` brings along."""
    dependencies = required(distribution.wheel, None)
    installation = install(distribution.wheel, tmp_path / "env", dependencies=dependencies)
    with (
        InstalledBroker(tmp_path / "data", installation.bin / "triglot", None) as broker,
        GroupCaller(broker.host, broker.port) as caller,
    ):
        topic_id = caller.create_topic("orders", 1)
        member = ConsumerMember(caller, "readers", topics=None, member_id="one")
        joined = member.join(subscribed_topic_regex="ord.*")
        assert (joined.error_code, joined.error_message) == (0, None)
        assert member.assigned == {topic_id: [0]}


def test_the_command_names_the_extra_that_is_missing(
    installation: Installation, tmp_path: Path
) -> None:
    blocked = (
        "import sys; sys.modules.update(numpy=None, pyarrow=None, pyspark=None); import triglot"
    )
    program = f"{blocked}; sys.argv[1:] = ['pipeline', 'archive', *'{ARCHIVE}'.split()]"
    run = subprocess.run(
        [installation.bin / "python", "-c", f"{program}; sys.exit(triglot.main())"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 10, run.stdout + run.stderr
    assert "pip install triglot[pipeline]" in run.stderr
    assert run.stderr.count("\n") == 1
