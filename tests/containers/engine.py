"""Podman and buildah as root, with everything they keep in a folder of their own.

No registry of images is asked: the image that the Dockerfile begins with is made by debootstrap
from Debian's packages, of the release that its tag names, and imported under its name. It differs
from the published image in that its Python is Debian's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.style.dockerfile import stages
from tests.style.sources import CHECKOUT
from tests.support.fetched import NotAvailable, made_once, runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAMS = ("podman", "buildah", "runc", "debootstrap", "dnsmasq", "iptables")
"""What the Debian packages that `.ci/run` installs bring."""

PYTHON = ("ca-certificates", "python3", "python3-venv", "python3-pip")
"""Debian's packages with what the published images of Python bring."""

CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"

BUILD_TIMEOUT_S = 900.0
COMMAND_TIMEOUT_S = 120.0

CONTAINERS_CONF = """\
[containers]
# Below those of any machine: a container may not raise a hard limit.
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "cni"
network_config_dir = "{folder}/networks"
"""

STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""


class Engine:
    """An engine without an image yet. Raises `NotAvailable` where it cannot run."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            raise NotAvailable("containers need root here")
        for program in PROGRAMS:
            runtime(program)
        (folder / "networks").mkdir(parents=True)
        self._environ = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CONTAINERS_CONF": self._configuration(folder, "containers.conf", CONTAINERS_CONF),
            "CONTAINERS_STORAGE_CONF": self._configuration(folder, "storage.conf", STORAGE_CONF),
            "BUILDAH_ISOLATION": "chroot",
        }

    @staticmethod
    def _configuration(folder: Path, name: str, text: str) -> str:
        file = folder / name
        file.write_text(text.format(folder=folder), encoding="utf-8")
        return str(file)

    def run(
        self, *command: str, timeout: float = COMMAND_TIMEOUT_S, checked: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the engine in the checkout; the two outputs come as one."""
        ended = subprocess.run(
            command,
            cwd=CHECKOUT,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not checked or ended.returncode == 0, f"{' '.join(command)}: {ended.stdout[-4000:]}"
        return ended

    def import_base(self) -> None:
        """Import the image that the Dockerfile begins with. Raises `NotAvailable`."""
        image = stages(CHECKOUT / "Dockerfile")[0].image
        release = image.rpartition("-")[2]
        self.import_debian(f"docker.io/library/{image}", release, packages=PYTHON)

    def import_debian(self, name: str, release: str, *, packages: Sequence[str]) -> None:
        """Make an image of a minimal Debian with these packages. Raises `NotAvailable`."""
        archive = debian_archive(release, packages)
        self.run("podman", "import", str(archive), name, timeout=BUILD_TIMEOUT_S)

    def build(self, tag: str, *, target: str = "", context: Path = CHECKOUT) -> None:
        """Build a stage of the Dockerfile in `context`, the last one where none is named."""
        stage = ["--target", target] if target else []
        flags = ["--layers", "--pull-never", "--format", "docker", *stage]
        self.run("buildah", "bud", *flags, "--tag", tag, str(context), timeout=BUILD_TIMEOUT_S)

    def logs(self, container: str) -> str:
        return self.run("podman", "logs", container, checked=False).stdout

    def close(self) -> None:
        """End what runs and give back what is mounted, so that the folder can be removed."""
        self.run("podman", "rm", "--all", "--force", "--time", "5", checked=False)
        self.run("podman", "rmi", "--all", "--force", checked=False)


def debian_archive(release: str, packages: Sequence[str]) -> Path:
    """A tar file with a minimal Debian of this release; Python's commands are `python` and `pip`,
    and pip installs where it is told to. Raises `NotAvailable`."""
    names = ",".join(packages)
    with made_once("debian", [release.encode(), names.encode()]) as (folder, missing):
        archive = folder / "base.tar"
        if missing:
            folder.mkdir()
            root = folder / "root"
            command = [runtime("debootstrap"), "--variant=minbase", f"--include={names}"]
            ended = subprocess.run(
                [*command, release, str(root)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
            if ended.returncode != 0:
                raise NotAvailable(f"debootstrap {release}: {ended.stdout[-1000:]}")
            _be_like_the_published_image(root)
            with tarfile.open(archive, "w") as tar:
                tar.add(root, arcname=".")
            shutil.rmtree(root)
    return archive


def _be_like_the_published_image(root: Path) -> None:
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    # Where registries are reached through a proxy, the machine knows a certificate more.
    shutil.copy(f"/{CERTIFICATES}", root / CERTIFICATES)
