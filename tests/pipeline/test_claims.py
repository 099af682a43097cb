"""A folder has one archive, however close to each other two runs begin one.

python -m tests.pipeline.test_claims FOLDER ROUNDS KIND NAME     # once a line is on its input
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import fs

from pipeline.archiving.owner import claim, owner_of
from pipeline.errors import ForeignState
from pipeline.filesystem import Location, create_whole, locate
from tests.support.broker_process import CHECKOUT

ROUNDS = 60


def place(folder: str, kind: str) -> Location:
    """A local folder, or one as an object store is met: with no system calls but Arrow's."""
    if kind == "local":
        return locate(folder)
    parent = Path(folder).parent
    return Location(fs.SubTreeFileSystem(str(parent), fs.LocalFileSystem()), Path(folder).name)


def owner(name: str) -> dict[str, object]:
    return {"format": 1, "state": name}


@pytest.mark.parametrize("kind", ["local", "store"])
def test_of_two_processes_that_claim_a_folder_at_once_at_most_one_has_it(
    tmp_path: Path, kind: str
) -> None:
    for number in range(ROUNDS):
        (tmp_path / str(number)).mkdir()
    words = [sys.executable, "-m", "tests.pipeline.test_claims", str(tmp_path), str(ROUNDS), kind]
    running = [
        subprocess.Popen(
            [*words, name], cwd=CHECKOUT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for name in "ab"
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    claimed = [process.communicate(timeout=60)[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    for number in range(ROUNDS):
        who = {name for name, found in zip("ab", claimed, strict=True) if str(number) in found}
        told = owner_of(place(str(tmp_path / str(number)), kind))
        assert len(who) < 2
        assert who == ({told["state"]} if told else set())
        if kind == "local":
            assert who


@pytest.mark.parametrize("kind", ["local", "store"])
def test_a_claim_is_made_once_and_leaves_nothing_else(tmp_path: Path, kind: str) -> None:
    folder = place(str(tmp_path / "lake"), kind)
    claim(folder, owner("a"))
    claim(folder, owner("a"))
    with pytest.raises(ForeignState, match="an archive of another run"):
        claim(folder, owner("b"))
    assert [path.name for path in (tmp_path / "lake").iterdir()] == ["_archive.json"]


def test_a_run_that_was_cut_off_in_its_claim_is_told_of(tmp_path: Path) -> None:
    folder = place(str(tmp_path / "lake"), "store")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "._archive.json.1234.announced").touch()
    with pytest.raises(ForeignState, match=r"another run makes an archive of .* at this moment"):
        claim(folder, owner("a"))
    assert create_whole(folder.under("another"), b"x")


@pytest.mark.parametrize(
    ("made", "uri"),
    [
        (fs.S3FileSystem(anonymous=True, region="eu-west-1"), "s3a://bucket/lake/a b"),
        (fs.LocalFileSystem(), "file:///bucket/lake/a%20b"),
    ],
    ids=["s3", "local"],
)
def test_spark_is_given_the_scheme_that_hadoop_knows(made: fs.FileSystem, uri: str) -> None:
    root = "/" if uri.startswith("file:") else ""
    assert Location(made, f"{root}bucket/lake/a b").uri == uri
    assert Location(made, f"{root}bucket").under("lake", "a b").uri == uri


if __name__ == "__main__":
    where, rounds, kind_of, me = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()
    for index in range(int(rounds)):
        try:
            claim(place(f"{where}/{index}", kind_of), owner(me))
        except ForeignState:
            continue
        print(index, flush=True)
