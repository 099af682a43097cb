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

import pytest
import yaml

from broker._version import VERSION
from config import load
from tests.style.dockerfile import Stage, stages
from tests.style.sources import CHECKOUT
from tests.support.installed import PACKAGES

if TYPE_CHECKING:
    from tests.style.conftest import Started

#: The first that wants an installation waits for three builds.
pytestmark = pytest.mark.timeout(600)

STAGES = {stage.name or "broker": stage for stage in stages(CHECKOUT / "Dockerfile")}
ENVIRONMENT, DEMO, PIPELINE = STAGES["environment"], STAGES["demo"], STAGES["pipeline"]
IMAGE = STAGES["broker"]
"""The last one, which is built where no target is named."""
IMAGES = (DEMO, PIPELINE, IMAGE)


def compose() -> dict[str, Any]:
    file: dict[str, Any] = yaml.safe_load((CHECKOUT / "compose.yaml").read_text(encoding="utf-8"))
    return file


def test_the_broker_is_what_is_built_where_no_target_is_named() -> None:
    assert list(STAGES) == [
        *("environment", "build", "build-pipeline"),
        *("pipeline", "demo", "broker"),
    ]


def test_every_image_it_builds_on_is_of_a_named_version() -> None:
    for stage in (ENVIRONMENT, *IMAGES):
        name, _, tag = stage.image.partition(":")
        assert name == "python"
        assert re.fullmatch(r"3\.\d+-slim-\w+", tag), stage.image


def test_all_stages_have_the_same_python_because_the_environment_is_copied() -> None:
    assert len({stage.image for stage in (ENVIRONMENT, *IMAGES)}) == 1
    assert {STAGES[name].image for name in ("build", "build-pipeline")} == {ENVIRONMENT.name}


def test_no_image_runs_as_root() -> None:
    for stage in IMAGES:
        user, _, group = stage.only("USER").rest.partition(":")
        assert int(user) >= 1000
        assert int(group) >= 1000
        after = stage.instructions[stage.instructions.index(stage.only("USER")) :]
        assert not [step for step in after if step.word in {"RUN", "COPY"}]


@pytest.mark.parametrize("stage", [IMAGE, PIPELINE], ids=["broker", "pipeline"])
def test_what_is_written_goes_to_a_volume_that_the_user_owns(stage: Stage) -> None:
    (volume,) = stage.only("VOLUME").command()
    steps = [(step.word, step.rest) for step in stage.instructions]
    (made,) = [
        at
        for at, (word, rest) in enumerate(steps)
        if word == "RUN" and rest.endswith(f"--owner triglot --group triglot {volume}")
    ]
    # What is changed in a folder after it became a volume is thrown away by the build.
    assert made < [word for word, _ in steps].index("VOLUME")


def test_the_broker_keeps_its_data_in_its_volume() -> None:
    command = IMAGE.only("CMD").command()
    assert IMAGE.only("VOLUME").command() == [command[command.index("--data") + 1]]


def test_the_pipeline_has_a_java_that_spark_runs_on_and_nothing_for_building() -> None:
    installed = [step.rest for step in PIPELINE.instructions if "apt-get install" in step.rest]
    (packages,) = [re.findall(r"--no-install-recommends (.*?) &&", rest) for rest in installed]
    assert packages == ["openjdk-21-jre-headless"]
    (copied,) = [step.rest for step in PIPELINE.instructions if step.word == "COPY"]
    assert copied == "--from=build-pipeline /opt/triglot /opt/triglot"
    ran = [step.rest for step in STAGES["build-pipeline"].instructions if step.word == "RUN"]
    assert ran[0].endswith("--requirement requirements-pipeline.lock")


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
        for stage in STAGES.values()
        for step in stage.instructions
        if step.word == "COPY" and "--from=" not in step.rest
        for source in step.rest.split()[:-1]
    }
    assert set(PACKAGES) < copied
    assert copied == let_through
    assert all((CHECKOUT / name).exists() for name in copied)


def test_the_broker_has_what_its_console_needs_and_the_demo_serves_it_on_loopback_only() -> None:
    (installed,) = [
        step.rest
        for step in STAGES["build"].instructions
        if step.word == "RUN" and "--requirement" in step.rest
    ]
    assert installed.endswith("--requirement requirements-console.lock")
    broker = compose()["services"]["broker"]
    address = broker["command"][broker["command"].index("--console") + 1]
    assert address == "0.0.0.0:8092"
    assert "127.0.0.1:8092:8092" in broker["ports"]


def test_the_demo_has_the_client_that_the_tests_use() -> None:
    (lock,) = re.findall(r"--requirement (\S+)", DEMO.only("RUN").rest)
    locked = (CHECKOUT / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    assert f"-r {lock}" in locked
    assert "kafka-python==" in (CHECKOUT / lock).read_text(encoding="utf-8")


def test_the_demo_waits_for_a_healthy_broker_and_publishes_it_on_loopback_only() -> None:
    services = compose()["services"]
    assert set(services) == {"broker", "producer", "consumer", "pipeline"}
    assert "127.0.0.1:9092:19092" in services["broker"]["ports"]
    assert all(port.startswith("127.0.0.1:") for port in services["broker"]["ports"])
    for client in (services["producer"], services["consumer"]):
        assert client["build"] == {"context": ".", "target": DEMO.name}
        assert client["depends_on"] == {"broker": {"condition": "service_healthy"}}
        assert client["environment"] == {"BOOTSTRAP": "broker:9092"}
        assert (CHECKOUT / "examples" / client["command"][1]).is_file()


def test_the_broker_of_the_demo_is_dialled_by_names_that_outlive_its_address() -> None:
    broker = compose()["services"]["broker"]
    settings = load(environ=broker["environment"])
    assert [str(one) for one in settings.listeners] == [
        "PLAINTEXT://0.0.0.0:9092",
        "HOST://0.0.0.0:19092",
    ]
    assert [str(one) for one in settings.advertised_listeners or ()] == [
        "PLAINTEXT://broker:9092",
        "HOST://127.0.0.1:9092",
    ]
    command = IMAGE.only("CMD").command()
    assert broker["command"][:4] == command[: command.index("--listen")]


def test_the_demo_keeps_its_data_in_a_volume() -> None:
    for service, stage in (("broker", IMAGE), ("pipeline", PIPELINE)):
        (mount,) = compose()["services"][service]["volumes"]
        name, _, target = mount.partition(":")
        assert name in compose()["volumes"]
        assert [target] == stage.only("VOLUME").command()


def test_the_demo_archives_the_topic_of_its_producer_into_the_volume() -> None:
    pipeline = compose()["services"]["pipeline"]
    assert pipeline["build"] == {"context": ".", "target": PIPELINE.name}
    assert pipeline["depends_on"] == {"broker": {"condition": "service_healthy"}}
    command = pipeline["command"]
    assert command[:3] == [*PIPELINE.only("CMD").command()[:2], "archive"]
    given = dict(zip(command[3::2], command[4::2], strict=True))
    (volume,) = PIPELINE.only("VOLUME").command()
    assert given["--to"].startswith(f"{volume}/")
    assert f'"{given["--topic"]}"' in (CHECKOUT / "examples" / "producer.py").read_text()


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
    (line,) = re.findall(r"-m tools (serve .*)", makefile)
    options = [word for word in shlex.split(line) if word.startswith("--")]
    assert options == [w for w in IMAGE.only("CMD").command() if w.startswith("--")]


def test_the_version_is_written_in_one_place() -> None:
    for name in ("pyproject.toml", "setup.py", "Dockerfile", "compose.yaml"):
        assert VERSION not in (CHECKOUT / name).read_text(encoding="utf-8"), name
