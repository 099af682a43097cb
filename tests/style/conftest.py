"""The distribution, built from a copy of the checkout, installed and started as users do it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.style.dockerfile import stages
from tests.style.sources import CHECKOUT
from tests.support.installed import Installation, built, copied_sources, install
from tests.support.server_process import RunningProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

READY_LINE = re.compile(r"listening on 127\.0\.0\.1:(?P<port>\d+)")


class Distribution(NamedTuple):
    wheel: Path
    """Built straight from the checkout."""
    wheel_of_sdist: Path
    """Built from the source distribution, as pip does where no wheel fits."""


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    folder = tmp_path_factory.mktemp("distribution")
    source = copied_sources(folder / "source")
    of_sdist = built(source, folder / "from-sdist")
    return Distribution(built(source, folder / "direct", "--wheel"), of_sdist)


@pytest.fixture(scope="session")
def installation(
    distribution: Distribution, tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    return install(distribution.wheel, tmp_path_factory.mktemp("installation"))


class Started(NamedTuple):
    port: str
    bin: Path
    """The folder with the command that was started."""


@pytest.fixture(scope="session")
def started(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    """The installed broker, run by the command of the container image."""
    folder = tmp_path_factory.mktemp("container")
    in_its_place = {"/data": str(folder / "data"), "0.0.0.0:9092": "127.0.0.1:0"}
    image = stages(CHECKOUT / "Dockerfile")[-1]
    program, *arguments = (in_its_place.get(word, word) for word in image.only("CMD").command())
    process = RunningProcess(
        [str(installation.bin / program), *arguments],
        cwd=folder,
        environ={"PYTHONUNBUFFERED": "1"},
        ready_line=READY_LINE,
    )
    try:
        ready = process.wait_until_ready(timeout_s=120)
    except BaseException:
        process.kill()
        raise
    yield Started(ready["port"], installation.bin)
    code = process.terminate()
    assert code == 0, process.output()
