"""One archive of many topics, with a folder and a table for each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import errors
from pipeline.archiving.publication import Publication
from pipeline.jobs.maintain import maintain
from pipeline.reading.plan import Range
from pipeline.tables.table import Catalog
from tests.pipeline.archive_runs import Runs, Topic, archive_of, made, names, replaced
from tests.pipeline.test_maintained_tables import catalog_of, read_back
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

KINDS = ("parquet", "delta", "iceberg")


@pytest.fixture
def topics(broker: BrokerProcess) -> Iterator[list[Topic]]:
    with Caller(broker.host, broker.port) as caller:
        yield [made(caller), made(caller), made(caller, next(names) + ".with_stops")]


def runs_of(kind: str, broker: BrokerProcess, tmp_path: Path, topics: list[Topic]) -> Runs:
    catalog = replaced(catalog_of(tmp_path), identifier="shop.{topic}")
    archive = archive_of(
        broker,
        tmp_path / "lake" / "{topic}",
        *topics,
        table=kind,
        catalog=catalog if kind == "iceberg" else None,
        state=str(tmp_path / "state"),
    )
    return Runs(archive)


@pytest.mark.parametrize("kind", KINDS)
def test_each_topic_has_a_folder_of_its_own_also_one_that_comes_later(
    kind: str, broker: BrokerProcess, topics: list[Topic], tmp_path: Path
) -> None:
    runs = runs_of(kind, broker, tmp_path, topics)
    first, second, later = topics
    ends = [first.write(3), second.write(2)]
    runs.micro_batch(0, Range(first.name, 0, 0, ends[0]), Range(second.name, 0, 0, 20))
    job = runs.start()
    job.commit(1, runs.work(job, 1, [Range(second.name, 0, 20, ends[1])]))
    # In the same run, without another start.
    job.commit(2, runs.work(job, 2, [Range(later.name, 0, 0, later.write(1))]))
    runs.micro_batch(2, Range(later.name, 0, 0, 20))
    for topic in topics:
        folder = tmp_path / "lake" / topic.name
        assert read_back(folder) == topic.rows()
        assert json.loads((folder / "_archive.json").read_text())["topic"] == topic.name
    assert not (tmp_path / "lake" / "{topic}").exists()
    if kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        catalog = catalog_of(tmp_path)
        known = load_catalog(catalog.name, **catalog.options).list_tables("shop")
        assert {name for _, name in known} == {topic.name.replace(".", "_") for topic in topics}
    if kind != "parquet":
        state = str(tmp_path / "state")
        outcome = maintain(str(tmp_path / "lake" / second.name), state=state, keep_s=0)
        assert outcome.details["files put together"] == 2
        runs.micro_batch(3, Range(second.name, 0, ends[1], second.write(1)))
        assert read_back(tmp_path / "lake" / second.name) == second.rows()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["_publish", "_move_all"])
def test_a_crash_between_two_topics_costs_no_record_and_doubles_none(
    kind: str,
    method: str,
    broker: BrokerProcess,
    topics: list[Topic],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Crash(Exception):
        pass

    runs = runs_of(kind, broker, tmp_path, topics)
    ranges = [Range(topic.name, 0, 0, topic.write(2)) for topic in topics]
    before = getattr(Publication, method)
    came: list[Any] = []

    def crashing(self: Publication, *rest: Any) -> None:
        came.append(self)
        if len(came) == 2:
            raise Crash
        before(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Publication, method, crashing)
        with pytest.raises(Crash):
            runs.micro_batch(0, *ranges)
    # Those that were published, or noted, are not fetched again.
    again = runs.micro_batch(0, *ranges)
    assert sorted("files" in facts for facts in again) == [False, False, True]
    runs.micro_batch(0, *ranges)
    for topic in topics:
        assert read_back(tmp_path / "lake" / topic.name) == topic.rows()
        assert not list((tmp_path / "lake" / topic.name).glob("_staging/*"))


def test_what_folders_of_topics_want_is_said_before_a_jvm_starts(
    broker: BrokerProcess, topics: list[Topic], tmp_path: Path
) -> None:
    runs = runs_of("delta", broker, tmp_path, topics)
    runs.archive.check()
    catalog = Catalog("shop.orders", "tests", {})
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"state": None}, "folders of topics share a state"),
        ({"table": "iceberg", "catalog": catalog}, "both in the folder and in the table's name"),
        ({"mode": "upsert"}, "has one table: give a folder without"),
    ]
    for fields, told in wrong:
        with pytest.raises(errors.WrongUse, match=told):
            replaced(runs.archive, **fields).check()
    # A folder that is somebody else's is found before anything is moved there.
    (tmp_path / "lake" / topics[0].name).mkdir(parents=True)
    (tmp_path / "lake" / topics[0].name / "thesis.odt").touch()
    with pytest.raises(errors.ForeignState, match=r"other files in it \(thesis\.odt\)"):
        runs.micro_batch(0, Range(topics[0].name, 0, 0, topics[0].write(1)))
