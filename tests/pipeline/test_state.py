"""A job's notes for itself, and the refusal of a state that is of something else."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

import pytest

from pipeline import errors
from pipeline.errors import ForeignState, OffsetsGone, Refused, WrongUse
from pipeline.filesystem import locate
from pipeline.state import State

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = {"job": "archive", "cluster": "abc", "topics": "orders"}


def test_a_note_is_there_for_the_next_run_and_for_a_task(tmp_path: Path) -> None:
    state = State.open(str(tmp_path / "state"), ORDERS)
    state.write("ends-3", {"orders-0": 17})
    state.write("ends-3", {"orders-0": 18})
    assert pickle.loads(pickle.dumps(state)).read("ends-3") == {"orders-0": 18}
    state.close()
    again = State.open(str(tmp_path / "state"), ORDERS)
    assert again.read("ends-3") == {"orders-0": 18}
    assert again.names() == ["ends-3", "job"]
    again.remove("ends-3")
    again.remove("ends-3")
    assert again.read("ends-3") is None
    again.close()


def test_a_state_of_another_topic_is_refused_before_and_while_it_is_opened(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    State.open(path, ORDERS).close()
    State.check(path, ORDERS)
    for attempt in (State.check, State.open):
        with pytest.raises(ForeignState, match=r"is of topics 'orders', not of 'payments'"):
            attempt(path, {**ORDERS, "topics": "payments"})
    with pytest.raises(ForeignState, match=r"is of topics 'orders', not of None"):
        State.check(path, {"job": "archive", "cluster": "abc"})


def test_a_state_of_another_job_or_of_a_newer_version_is_refused_and_stays_as_it_is(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state"
    State.open(str(path), ORDERS).close()
    with pytest.raises(ForeignState, match=r"is of job 'archive', not of 'mirror'"):
        State.open(str(path), {**ORDERS, "job": "mirror"})
    note = path / "job.json"
    for text, line in (
        (json.dumps({**ORDERS, "format": 2}), "is of format 2, and this version knows format 1"),
        ('["archive"]', "job.json does not tell whose state it is"),
        ("{", "job.json is damaged"),
    ):
        note.write_text(text)
        for attempt in (State.check, State.open):
            with pytest.raises(ForeignState, match=line) as told:
                attempt(str(path), ORDERS)
            assert "\n" not in str(told.value)
        assert note.read_text() == text
    note.write_text(json.dumps({**ORDERS, "format": 1}))
    State.open(str(path), ORDERS).close()


def test_a_folder_of_other_files_is_no_state(tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text("mine")
    with pytest.raises(ForeignState, match="is no state of a pipeline"):
        State.open(str(tmp_path), ORDERS)
    assert [path.name for path in tmp_path.iterdir()] == ["report.txt"]


def test_a_second_run_of_one_state_is_refused_while_the_first_goes_on(tmp_path: Path) -> None:
    first = State.open(str(tmp_path), ORDERS)
    with pytest.raises(ForeignState, match="another run uses the state"):
        State.open(str(tmp_path), ORDERS)
    first.close()
    State.open(str(tmp_path), ORDERS).close()


class Crash(BaseException):
    """The machine goes down."""


def test_a_state_that_was_cut_off_as_it_began_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise Crash

    for cut_off in ("pipeline.state.write_whole", "pipeline.filesystem.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(cut_off, crash)
            with pytest.raises(Crash):
                State.open(str(tmp_path / "state"), ORDERS)
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == [
        ".job.json.part",
        "lock",
    ]
    State.open(str(tmp_path / "state"), ORDERS).close()
    State.check(str(tmp_path / "state"), ORDERS)


def test_a_state_that_another_run_began_in_between_is_compared_once_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = State._hold

    def late(state: State, path: str) -> None:
        monkeypatch.setattr(State, "_hold", hold)
        State.open(path, {**ORDERS, "topics": "payments"}).close()
        hold(state, path)

    monkeypatch.setattr(State, "_hold", late)
    with pytest.raises(ForeignState, match="is of topics 'payments', not of 'orders'"):
        State.open(str(tmp_path), ORDERS)
    # It is not held by the one that was refused.
    State.open(str(tmp_path), {**ORDERS, "topics": "payments"}).close()


def test_a_place_that_cannot_be_used_is_told_in_the_systems_words_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for attempt in (State.check, State.open):
        with pytest.raises(Refused, match=r"^cannot use .*/file for the state: Not a directory$"):
            attempt(str(tmp_path / "file"), ORDERS)
    with pytest.raises(Refused, match=r"^cannot use .*/new for the state: Not a directory$"):
        State.open(str(tmp_path / "file" / "new"), ORDERS)
    state = State.open(str(tmp_path / "state"), ORDERS)
    (tmp_path / "state" / ".ends.json.part").mkdir()
    with pytest.raises(Refused, match=r"^cannot write .*/state/ends\.json: Is a directory$"):
        state.write("ends", {})
    state.close()


def test_the_names_of_folders_that_are_made_are_on_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr("pipeline.filesystem.sync", synced.append)
    locate(str(tmp_path / "states" / "orders")).make()
    assert set(synced) == {str(tmp_path), str(tmp_path / "states")}
    locate(str(tmp_path / "states" / "orders")).make()
    assert len(synced) == 2


def test_what_a_power_cut_has_left_empty_of_a_checkpoint_is_removed(tmp_path: Path) -> None:
    """Spark does not start with such a file, and brings none of them to the disk."""
    State.open(str(tmp_path), ORDERS).close()
    checkpoint = tmp_path / "checkpoint"
    for name in ("offsets/8", "offsets/9", "offsets/10", "commits/8", "commits/9", "metadata"):
        for file in (checkpoint / name, checkpoint / name.replace("/", "/.")):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.with_name(file.name + ".crc" * file.name.startswith(".")).write_text("v1")
    for name in ("offsets/10", "commits/9", "commits/7", "metadata"):
        (checkpoint / name).write_bytes(b"")
    State.open(str(tmp_path), ORDERS).close()
    left = {str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file()}
    assert left == {
        "offsets/8", "offsets/.8.crc", "offsets/9", "offsets/.9.crc", "commits/8", "commits/.8.crc",
        "commits/7",
    }  # fmt: skip


def test_a_plan_is_on_the_disk_before_anything_is_noted_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State.open(str(tmp_path), ORDERS)
    synced: list[str] = []
    monkeypatch.setattr("pipeline.state.sync", synced.append)
    state.keep(3)
    assert synced == []
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "3").write_text("v1")
    (offsets / ".3.crc").write_text("crc")
    state.keep(3)
    folders = [offsets, tmp_path / "checkpoint", tmp_path]
    assert synced == [str(path) for path in (offsets / "3", offsets / ".3.crc", *folders)]
    state.close()


def test_a_damaged_note_is_named(tmp_path: Path) -> None:
    State.open(str(tmp_path), ORDERS).close()
    (tmp_path / "job.json").write_text("{")
    with pytest.raises(ForeignState, match=r"job\.json is damaged"):
        State.check(str(tmp_path), ORDERS)


def test_a_place_with_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(WrongUse, match="cannot use ftps://there as a place for files"):
        State.check("ftps://there", ORDERS)


def test_every_failure_has_an_exit_code_of_its_own() -> None:
    codes = list(errors.EXIT_CODES.values())
    assert len(set(codes)) == len(codes)
    assert not {0, 1} & set(codes)


def test_a_failure_of_a_task_is_found_in_the_text_that_spark_makes_of_it() -> None:
    try:
        raise OffsetsGone("orders-3: offsets 100 to 4,999\nwere deleted")
    except OffsetsGone as error:
        told = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
    text = f"org.apache.spark.SparkException: Job aborted\nTraceback ...\n{told}\n\n\tat java"
    found = errors.find(text)
    assert isinstance(found, OffsetsGone)
    assert str(found) == "orders-3: offsets 100 to 4,999 were deleted"
    assert errors.find("java.lang.OutOfMemoryError: Java heap space") is None
