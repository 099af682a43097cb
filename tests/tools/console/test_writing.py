"""What a console changes: nothing, unless it may; then what was shown, and no more."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from client.cluster import Cluster, TopicPartition
from protocol.records.builder import build_batch
from tests.support.broker_process import BrokerProcess
from tests.support.console import ConsoleClient
from tools.console.pages.produce import produce
from tools.console.pages.reset import reset
from tools.console.visit import NotAllowed, Visit
from tools.produce.partitioning import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.console import Answer


@pytest.fixture(scope="module")
def writable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("writable")
    arguments = ("--console", "127.0.0.1:0", "--console-writable")
    with BrokerProcess(folder, arguments=arguments) as running:
        yield running
        assert "Traceback" not in running.output()


@pytest.fixture(scope="module")
def cluster(writable: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(writable.bootstrap) as client:
        yield client


@pytest.fixture
def writer(writable: BrokerProcess) -> ConsoleClient:
    return ConsoleClient(writable)


def fill(cluster: Cluster, topic: str, count: int) -> TopicPartition:
    place = TopicPartition(topic, 0)
    cluster.create_topic(topic, 1)
    records = [(1_700_000_000_000 + at, None, b"%d" % at, ()) for at in range(count)]
    cluster.produce(place, [build_batch(records)])
    return place


def test_a_record_is_written_as_its_form_says(writer: ConsoleClient, cluster: Cluster) -> None:
    cluster.create_topic("written", 3)
    page = "/topics/written/produce"
    answer = writer.send(
        page, page, partition="2", key="00 ff", key_kind="hex", value='{"a":\r\n1}',
        value_kind="text", headers="trace: 7\r\nempty:",
    )  # fmt: skip
    assert answer.status == 303, answer.text
    assert answer.fields["location"] == "/topics/written/records?partition=2&offset=0"
    shown = writer.get(answer.fields["location"])
    assert "00 ff" in shown.text
    assert "trace 7" in shown.text
    assert writer.get("/topics/written/partitions/2/offsets/0/value").body == b'{"a":\n1}'


def test_a_key_chooses_the_partition_that_producers_choose(
    writer: ConsoleClient, cluster: Cluster
) -> None:
    cluster.create_topic("keyed", 3)
    page = "/topics/keyed/produce"
    answer = writer.send(page, page, key="21", value="", value_kind="null")
    place = f"partition={partition_of(b'21', 3)}"
    assert answer.fields["location"] == f"/topics/keyed/records?{place}&offset=0"
    again = writer.send(page, page, key="21", value="x")
    assert again.fields["location"] == f"/topics/keyed/records?{place}&offset=1"


def test_a_record_without_a_key_has_none(writer: ConsoleClient, cluster: Cluster) -> None:
    cluster.create_topic("keyless", 1)
    page = "/topics/keyless/produce"
    shown = writer.get(writer.send(page, page, key="", value="").fields["location"])
    assert shown.text.count("null") == 2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"key": "xyz", "key_kind": "hex"}, "wanted pairs of hexadecimal digits"),
        ({"value": "x", "value_kind": "null"}, "it is to be null, and there is text"),
        ({"headers": "no colon"}, "wanted lines of 'name: value'"),
        ({"partition": "9"}, "has no partition 9"),
        ({"value": "x" * 1_100_000}, "(max.message.bytes)"),
        ({"value_kind": "xml"}, "value: wanted text, hex, null"),
    ],
)
def test_a_form_that_makes_no_record_comes_back_with_what_is_wrong(
    writer: ConsoleClient, cluster: Cluster, fields: dict[str, str], said: str
) -> None:
    if "refusing" not in cluster.topics():
        cluster.create_topic("refusing", 1)
    page = "/topics/refusing/produce"
    answer = writer.send(page, page, **{"value": "kept <b>", **fields})
    assert (answer.status, said in answer.text) == (400, True), answer.text
    if "value" not in fields:
        assert "kept &lt;b&gt;" in answer.html
    assert "No records are there" in writer.get("/topics/refusing/records").text


def test_offsets_are_moved_to_what_the_preview_has_shown(
    writer: ConsoleClient, cluster: Cluster
) -> None:
    place = fill(cluster, "moved", 100)
    cluster.commit_offsets("mover", {place: 50})
    page = writer.get("/group/reset?id=mover&to=latest")
    assert ["moved-0", "50", "100", "+50", ""] in page.rows
    assert cluster.committed_offsets("mover", [place]) == {place: 50}
    # More records come after the preview: the end has moved, what was shown has not.
    cluster.produce(place, [build_batch([(0, None, b"late", ())])])
    answer = set_as_shown(writer, "/group/reset?id=mover&to=latest", page.html)
    assert (answer.status, answer.fields["location"]) == (303, "/group?id=mover")
    assert cluster.committed_offsets("mover", [place]) == {place: 100}


def set_as_shown(writer: ConsoleClient, page: str, html: str, *, form: str = "") -> Answer:
    """Send the moves of a preview, with the token of some form."""
    moves = re.search(r'name="moves" value="([^"]*)"', html)
    group = re.search(r'name="id" value="([^"]*)"', html)
    assert moves is not None
    assert group is not None
    return writer.send(form or page, page, id=group[1], moves=unescape(moves[1]))


def test_a_group_with_members_is_left_alone(writer: ConsoleClient, cluster: Cluster) -> None:
    place = fill(cluster, "busy", 10)
    cluster.commit_offsets("reading", {place: 5})
    page = "/group/reset?id=reading&to=earliest"
    html = writer.get(page).html
    consumer = Consumer({
        "bootstrap.servers": cluster.servers,
        "group.id": "reading",
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe(["busy"])
    try:
        while not consumer.assignment():
            consumer.poll(0.5)
        assert "1 member is in it" in writer.get(page).text
        answer = set_as_shown(writer, page, html, form="/topics/busy/produce")
        assert (answer.status, "stop them first; nothing was changed" in answer.text) == (409, True)
    finally:
        consumer.close()
    assert cluster.committed_offsets("reading", [place]) == {place: 5}


@pytest.mark.parametrize(
    ("asked", "new"),
    [
        ("to=earliest", "0"),
        ("to=offset&value=7", "7"),
        ("to=offset&value=999", "60"),
        ("to=shift&value=-10", "20"),
        ("to=time&value=1700000000042", "42"),
    ],
)
def test_a_preview_shows_where_a_group_would_go(
    writer: ConsoleClient, cluster: Cluster, asked: str, new: str
) -> None:
    if "previewed" not in cluster.topics():
        cluster.commit_offsets("planner", {fill(cluster, "previewed", 60): 30})
    rows = writer.get(f"/group/reset?id=planner&{asked}").rows
    assert rows[1][:3] == ["previewed-0", "30", new]


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("id=nobody", 404, "has committed nothing"),
        ("", 404, "has committed nothing"),
        ("id=asker&to=moon", 400, "to: wanted earliest, latest"),
        ("id=asker&to=offset&value=x", 400, "value: wanted a whole number"),
        ("id=asker&to=time&value=x", 400, "time: wanted how long ago"),
        ("id=asker&topic=nothing", 400, "has committed nothing of topic"),
    ],
)
def test_a_preview_that_makes_no_sense_is_told(
    writer: ConsoleClient, cluster: Cluster, query: str, status: int, said: str
) -> None:
    if "asked" not in cluster.topics():
        cluster.commit_offsets("asker", {fill(cluster, "asked", 1): 0})
    answer = writer.get(f"/group/reset?{query}")
    assert (answer.status, said in answer.text) == (status, True), answer.text


@pytest.mark.parametrize("moves", ["", "x", "[]", '[["t"]]', "[[1,2,-3]]", '{"a": 1}', "[1]"])
def test_moves_that_no_preview_has_made_are_refused(writer: ConsoleClient, moves: str) -> None:
    page = "/group/reset?id=nobody"
    writer.get("/topics")
    answer = writer.send("/topics/keyed/produce", page, id="nobody", moves=moves)
    assert (answer.status, "there is no offset to set" in answer.text) == (400, True)


def test_a_console_that_only_reads_shows_no_form_and_takes_none(
    console: ConsoleClient, client: Cluster
) -> None:
    place = TopicPartition("read-only", 0)
    client.create_topic("read-only", 1)
    client.produce(place, [build_batch([(0, None, b"x", ())])])
    client.commit_offsets("reader", {place: 1})
    page = console.get("/group/reset?id=reader&to=earliest")
    assert ["read-only-0", "1", "0", "-1", ""] in page.rows
    assert "The console only reads" in page.text
    assert 'method="post"' not in page.html
    assert console.get("/topics/read-only/produce").status == 403
    assert "Write a record" not in console.get("/topics/read-only").text
    for path in ("/topics/read-only/produce", "/group/reset?id=reader"):
        assert console.ask("POST", path, body="value=x&id=reader").status == 403
    assert client.committed_offsets("reader", [place]) == {place: 1}


@pytest.mark.parametrize("change", [produce, reset])
def test_nothing_is_changed_by_a_visit_that_may_not_write(
    change: Callable[[Visit], object],
) -> None:
    nothing: Any = None
    visit = Visit(
        *(nothing, nothing, nothing, nothing, nothing, nothing, {}, {}, 0),
        may_write=False,
        turn=nothing,
    )
    with pytest.raises(NotAllowed, match="--console-writable"):
        change(visit)
