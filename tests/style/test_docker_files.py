"""The image and the demo, as far as they can be tried without a container engine.

The files are read and checked, and the very commands that a container would run are run here:
the image's CMD and HEALTHCHECK by the installed wheel, with only the address and the data
directory replaced. The commands of the demo's clients are run by test_examples.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import yaml

from broker._version import VERSION
from tests.style.dockerfile import stages
from tests.style.sources import CHECKOUT, FLOORS

if TYPE_CHECKING:
    from tests.style.conftest import Started

BUILD, DEMO, IMAGE = stages(CHECKOUT / "Dockerfile")


def compose() -> dict[str, Any]:
    file: dict[str, Any] = yaml.safe_load((CHECKOUT / "compose.yaml").read_text(encoding="utf-8"))
    return file


def test_every_image_it_builds_on_is_of_a_named_version() -> None:
    for stage in (BUILD, DEMO, IMAGE):
        name, _, tag = stage.image.partition(":")
        assert name == "python"
        assert re.fullmatch(r"3\.\d+-slim-\w+", tag), stage.image


def test_all_stages_have_the_same_python_because_the_environment_is_copied() -> None:
    assert len({stage.image for stage in (BUILD, DEMO, IMAGE)}) == 1


def test_neither_image_runs_as_root() -> None:
    for stage in (DEMO, IMAGE):
        user, _, group = stage.only("USER").rest.partition(":")
        assert int(user) >= 1000
        assert int(group) >= 1000
        after = stage.instructions[stage.instructions.index(stage.only("USER")) :]
        assert not [step for step in after if step.word in {"RUN", "COPY"}]


def test_the_data_directory_is_a_volume_that_the_user_owns() -> None:
    (volume,) = IMAGE.only("VOLUME").command()
    command = IMAGE.only("CMD").command()
    assert volume == command[command.index("--data") + 1]
    made = IMAGE.only("RUN").rest
    assert f"install --directory --owner triglot --group triglot {volume}" in made
    # What is changed in a folder after it became a volume is thrown away by the build.
    words = [step.word for step in IMAGE.instructions]
    assert words.index("RUN") < words.index("VOLUME")


def test_the_port_that_is_listened_on_is_exposed_and_asked_for_health() -> None:
    command = IMAGE.only("CMD").command()
    host, _, port = command[command.index("--listen") + 1].rpartition(":")
    assert host == "0.0.0.0"
    assert IMAGE.only("EXPOSE").rest == port
    health = IMAGE.only("HEALTHCHECK").command()
    assert health[health.index("--port") + 1] == port


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    let_through = {
        line[1:]
        for line in (CHECKOUT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = {
        source.rstrip("/")
        for stage in (BUILD, DEMO, IMAGE)
        for step in stage.instructions
        if step.word == "COPY" and "--from=" not in step.rest
        for source in step.rest.split()[:-1]
    }
    assert set(FLOORS) < copied
    assert copied == let_through
    assert all((CHECKOUT / name).exists() for name in copied)


def test_the_demo_has_the_client_that_the_tests_use() -> None:
    (lock,) = re.findall(r"--requirement (\S+)", DEMO.only("RUN").rest)
    locked = (CHECKOUT / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    assert f"-r {lock}" in locked
    assert "kafka-python==" in (CHECKOUT / lock).read_text(encoding="utf-8")


def test_the_demo_waits_for_a_healthy_broker_and_publishes_it_on_loopback_only() -> None:
    services = compose()["services"]
    assert set(services) == {"broker", "producer", "consumer"}
    assert services["broker"]["ports"] == ["127.0.0.1:9092:9092"]
    for client in (services["producer"], services["consumer"]):
        assert client["build"] == {"context": ".", "target": DEMO.name}
        assert client["depends_on"] == {"broker": {"condition": "service_healthy"}}
        assert client["environment"] == {"BOOTSTRAP": "broker:9092"}
        assert (CHECKOUT / "examples" / client["command"][1]).is_file()


def test_the_demo_keeps_its_data_in_a_volume() -> None:
    (mount,) = compose()["services"]["broker"]["volumes"]
    name, _, target = mount.partition(":")
    assert name in compose()["volumes"]
    assert [target] == IMAGE.only("VOLUME").command()


def test_nothing_here_names_the_moving_tag_latest() -> None:
    for name in ("Dockerfile", "compose.yaml"):
        assert ":latest" not in (CHECKOUT / name).read_text(encoding="utf-8")


def health_check(started: Started, port: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = IMAGE.only("HEALTHCHECK").command()
    return subprocess.run(
        [started.bin / program, *(port if word == "9092" else word for word in arguments)],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )


def test_the_command_of_the_image_starts_a_broker_whose_health_check_succeeds(
    started: Started,
) -> None:
    health = health_check(started, started.port)
    assert health.returncode == 0, health.stdout + health.stderr


def test_the_health_check_fails_where_no_broker_answers(started: Started) -> None:
    assert health_check(started, "1").returncode == 1


def test_the_command_of_a_checkout_is_that_of_the_image() -> None:
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    (line,) = re.findall(r"-m broker (serve .*)", makefile)
    options = [word for word in shlex.split(line) if word.startswith("--")]
    assert options == [w for w in IMAGE.only("CMD").command() if w.startswith("--")]


def test_the_version_is_written_in_one_place() -> None:
    for name in ("pyproject.toml", "setup.py", "Dockerfile", "compose.yaml"):
        assert VERSION not in (CHECKOUT / name).read_text(encoding="utf-8"), name
