from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.records import crc
from tests.records.corpus import reference_crc32c

CHECKOUT = Path(__file__).resolve().parents[2]
SAY = "from protocol.records import crc; print(crc.IMPLEMENTATION, hex(crc.crc32c(b'123456789')))"


def run(*arguments: str, path: list[Path]) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": ":".join(str(entry) for entry in path)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_the_check_values_are_those_of_the_standards() -> None:
    assert crc.crc32c(b"123456789") == 0xE3069283
    assert crc.crc32(b"123456789") == 0xCBF43926


@pytest.mark.parametrize("size", [0, 1, 7, 8, 61, 1000, 40_000])
def test_crc32c_agrees_with_an_independent_implementation(size: int) -> None:
    data = random.Random(size).randbytes(size)
    expected = reference_crc32c(data)
    assert crc.crc32c(data) == expected
    assert crc.crc32c(bytearray(data)) == expected
    assert crc.crc32c(memoryview(bytearray(b"x" + data))[1:]) == expected


def test_the_fast_extension_is_found_without_the_package_around_it() -> None:
    code = "import sys; before = set(sys.modules); from protocol.records import crc; "
    code += "print(crc.IMPLEMENTATION, 'importlib.metadata' in set(sys.modules) - before)"
    result = run("-c", code, path=[CHECKOUT])
    assert result.stdout.split() == ["crc32c", "False"], result.stderr


def test_crc32c_can_still_be_imported_as_a_package_afterwards() -> None:
    code = "from protocol.records import crc; import crc32c; print(crc32c.crc32c(b'1'))"
    result = run("-c", code, path=[CHECKOUT])
    assert result.stdout.split() == [str(crc.crc32c(b"1"))], result.stderr


def test_crcmod_serves_where_nothing_faster_is_installed(tmp_path: Path) -> None:
    # given an interpreter without site-packages, and a path on which only crcmod is found
    spec = importlib.util.find_spec("crcmod")
    assert spec is not None
    assert spec.submodule_search_locations
    (tmp_path / "crcmod").symlink_to(spec.submodule_search_locations[0])
    # when
    result = run("-S", "-c", SAY, path=[CHECKOUT, tmp_path])
    # then
    assert result.stdout.split() == ["crcmod", "0xe3069283"], result.stderr


def test_crcmod_takes_views_of_writable_buffers(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("crcmod")
    assert spec is not None
    assert spec.submodule_search_locations
    (tmp_path / "crcmod").symlink_to(spec.submodule_search_locations[0])
    code = SAY.replace("b'123456789'", "memoryview(bytearray(b'0123456789'))[1:]")
    result = run("-S", "-c", code, path=[CHECKOUT, tmp_path])
    assert result.stdout.split() == ["crcmod", "0xe3069283"], result.stderr


def test_without_any_implementation_the_import_says_what_to_install() -> None:
    result = run("-S", "-c", SAY, path=[CHECKOUT])
    assert result.returncode != 0
    assert "install crc32c" in result.stderr
