"""Everything about the distribution that pyproject.toml cannot say: where its files go.

The flat packages of the checkout go below the package `triglot` in the wheel, and their imports of
each other are rewritten to say so; `tools/_launch.py` becomes `triglot` itself. An installation
adds one name to an environment, and its modules are where every interpreter finds them.
The parts in C are optional: a build without a compiler lacks them, and is slower. With
TRIGLOT_PURE=1 they are left out, and the wheel is for every system.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py

NAME = "triglot"
FLAT = ("broker", "client", "config", "pipeline", "protocol", "storage", "testing", "tools")
LAUNCHER = "tools/_launch.py"


def nested(source: bytes, path: str) -> bytes:
    """A module whose imports of `FLAT` packages are of those below `NAME`, its lines as many.

    Raises SyntaxError for `import storage.log`, which binds the name `storage`: what the code then
    reaches through it could not be found.
    """
    lines = source.splitlines(keepends=True)
    places: list[tuple[int, int, bytes]] = []
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and is_flat(node.module):
            # The code is formatted: one blank follows `from`. The check below would see another.
            places.append((node.lineno, node.col_offset + len("from "), b""))
        elif isinstance(node, ast.Import):
            for alias in filter(lambda alias: is_flat(alias.name), node.names):
                if "." in alias.name and alias.asname is None:
                    where = (path, alias.lineno, None, None)
                    raise SyntaxError(f"write `from ... import ...` for {alias.name}", where)
                if alias.asname is None:
                    bound = f" as {alias.name}".encode()
                    places.append((alias.lineno, alias.col_offset + len(alias.name), bound))
                places.append((alias.lineno, alias.col_offset, b""))
    for number, column, text in sorted(places, reverse=True):
        line = lines[number - 1]
        lines[number - 1] = line[:column] + (text or f"{NAME}.".encode()) + line[column:]
    changed = b"".join(lines)
    for node in ast.walk(ast.parse(changed, path)):
        module = node.module if isinstance(node, ast.ImportFrom) and node.level == 0 else None
        assert not is_flat(module), f"{path}:{getattr(node, 'lineno', 0)}: {module}"
    return changed


def is_flat(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in FLAT


def nest(built: Path) -> None:
    """Rewrite a module, or the stub of a compiled one, that was copied to where it is built."""
    if built.suffix in (".py", ".pyi"):
        built.write_bytes(nested(built.read_bytes(), str(built)))


class BuildPy(build_py):  # type: ignore[misc]
    """Builds the package `NAME`, which has no folder of its own in the checkout."""

    def check_package(self, package: str, package_dir: str) -> str | None:
        return None if package == NAME else super().check_package(package, package_dir)

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        if package == NAME:
            return [(package, "__init__", LAUNCHER), (package, "__main__", LAUNCHER)]
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in found if module[2] != LAUNCHER]

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        outfile, copied = super().build_module(module, module_file, package)
        nest(Path(outfile))
        return outfile, copied

    def build_package_data(self) -> None:
        super().build_package_data()
        for _package, _source, folder, names in self.data_files:
            for name in names:
                nest(Path(folder, name))
        Path(self.build_lib, NAME, "py.typed").touch()  # PEP 561: the annotations count


# Without debugging symbols, which would hold the folder of the build.
compiled = [
    Extension(
        f"{NAME}.{source.replace('/', '.')}",
        [f"{source}.c"],
        extra_compile_args=["-O2", "-g0"],
        optional=True,
    )
    for source in ("protocol/records/_loops", "protocol/_single")
]
packages = [name for top in FLAT for name in find_packages(include=[top, f"{top}.*"])]
setup(
    packages=[NAME, *(f"{NAME}.{name}" for name in packages)],
    package_dir={f"{NAME}.{top}": top for top in FLAT},
    package_data={f"{NAME}.tools.console": ["static/*", "templates/*"]},
    ext_modules=[] if os.environ.get("TRIGLOT_PURE") == "1" else compiled,
    cmdclass={"build_py": BuildPy},
)
