"""Everything about the distribution that pyproject.toml cannot say: where its files go.

The flat packages of the checkout go to `triglot/_flat/` in the wheel, and `broker/_launch.py`
becomes the package `triglot` itself, so that an installation adds one name to an environment.
The one part in C is optional: a build without a compiler lacks it and is slower at converting.
"""

from __future__ import annotations

from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py

FLAT = ("broker", "config", "protocol", "storage")
LAUNCHER = "broker/_launch.py"


class BuildPy(build_py):  # type: ignore[misc]
    """Builds the package `triglot`, which has no folder of its own in the checkout."""

    def check_package(self, package: str, package_dir: str) -> str | None:
        return None if package == "triglot" else super().check_package(package, package_dir)

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        if package == "triglot":
            return [(package, "__init__", LAUNCHER), (package, "__main__", LAUNCHER)]
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in found if module[2] != LAUNCHER]


# Without debugging symbols, which would hold the folder of the build.
record_loops = Extension(
    "triglot._flat.protocol.records._loops",
    ["protocol/records/_loops.c"],
    extra_compile_args=["-O2", "-g0"],
    optional=True,
)
packages = [name for top in FLAT for name in find_packages(include=[top, f"{top}.*"])]
setup(
    packages=["triglot", *(f"triglot._flat.{name}" for name in packages)],
    package_dir={f"triglot._flat.{top}": top for top in FLAT},
    ext_modules=[record_loops],
    cmdclass={"build_py": BuildPy},
)
