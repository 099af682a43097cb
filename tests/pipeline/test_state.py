"""What a job notes for itself, and the refusal of a state that is of something else."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from pipeline import errors
from pipeline.errors import ForeignState, OffsetsGone, WrongUse
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


def test_a_damaged_note_is_named(tmp_path: Path) -> None:
    State.open(str(tmp_path), ORDERS).close()
    (tmp_path / "job.json").write_text("{")
    with pytest.raises(ForeignState, match=r"job\.json is damaged"):
        State.check(str(tmp_path), ORDERS)


def test_a_place_with_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(WrongUse, match="cannot use ftps://there as a place for files"):
        State.check("ftps://there", ORDERS)


def test_every_failure_has_an_exit_code_of_its_own() -> None:
    codes = [kind.exit_code for kind in errors.KINDS.values()]
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
