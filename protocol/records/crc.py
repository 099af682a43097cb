"""CRC-32 (formats 0 and 1) and CRC-32C (format 2), by the fastest means present.

`crc32c` is the only work per byte on the produce path, so the choice matters: for 1 MB the `crc32c`
and `google_crc32c` extensions take 0.04 ms, `crcmod` with its C part 2.3 ms and without it 124 ms.
`IMPLEMENTATION` names the one in use, so that the broker can say it at start-up.

Both functions take any contiguous bytes-like object and return an unsigned 32-bit number. A second
argument is the sum of what came before, so that something large can be summed in pieces.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader, PathFinder
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

if TYPE_CHECKING:
    from types import ModuleType

    class Checksum(Protocol):
        def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int: ...


__all__ = ["IMPLEMENTATION", "crc32", "crc32c"]


def _load_crc32c_extension() -> ModuleType | None:
    """The C part of the `crc32c` distribution without running the package around it.

    The package asks importlib.metadata for its own version when imported, which costs 40 ms of a
    start-up that should take a quarter of a second. None if the extension is not where we look.
    """
    package = PathFinder.find_spec("crc32c")
    if package is None or not package.submodule_search_locations:
        return None
    spec = PathFinder.find_spec("crc32c._crc32c", list(package.submodule_search_locations))
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        return None
    module = spec.loader.create_module(spec)
    spec.loader.exec_module(module)
    return module


def _from_crc32c() -> Checksum:
    extension = _load_crc32c_extension()
    if extension is not None:
        function: Checksum = extension.crc32c
        return function
    from crc32c import crc32c as packaged

    return packaged


def _from_google_crc32c() -> Checksum:
    from google_crc32c import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
        extend,
    )

    def checksum(data: bytes | bytearray | memoryview, value: int = 0, /) -> int:
        return int(extend(value, bytes(data)))  # this extension refuses anything but bytes

    return checksum


def _from_crcmod() -> Checksum:
    from crcmod.predefined import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
        mkPredefinedCrcFun,
    )

    compute = mkPredefinedCrcFun("crc-32c")

    def checksum(data: bytes | bytearray | memoryview, value: int = 0, /) -> int:
        return int(compute(bytes(data), value))  # this extension refuses writable buffers

    return checksum


def choose() -> tuple[str, Checksum]:
    """The name of the fastest implementation that can be imported, and its function.

    Raises ImportError when there is none; the distribution depends on two of them.
    """
    for name, load in (
        ("crc32c", _from_crc32c),
        ("google_crc32c", _from_google_crc32c),
        ("crcmod", _from_crcmod),
    ):
        try:
            return name, load()
        except ImportError:
            continue
    raise ImportError("no CRC-32C implementation: install crc32c, google-crc32c or crcmod")


IMPLEMENTATION: str
crc32c: Checksum
IMPLEMENTATION, crc32c = choose()
