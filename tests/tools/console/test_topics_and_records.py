"""Pages about topics and records, of a real broker: the questions that a stranger has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from client.cluster import TopicPartition
from protocol.records.builder import batch_of_rows, build_batch
from protocol.records.legacy import build_messages
from tests.support.caller import Caller
from tools.console.reading import HEADERS_MAX, HEADERS_SHOWN, RECORDS_OF_A_BATCH_MAX
from tools.console.visible import PIECE_PARTITIONS

if TYPE_CHECKING:
    from client.cluster import Cluster
    from tests.support.broker_process import BrokerProcess
    from tests.support.console import ConsoleClient

SCRIPT = '<script>alert("x")</script><img src=x onerror=alert(1)>'


def fill(client: Cluster, topic: str, values: list[bytes], *, partitions: int = 1) -> None:
    """A topic with a record for each value, in its first partition."""
    client.create_topic(topic, partitions)
    client.produce(TopicPartition(topic, 0), [batch(values)])


def batch(values: list[bytes], *, codec: int = 0) -> bytes:
    records = [(1_700_000_000_000 + at, None, value, ()) for at, value in enumerate(values)]
    return build_batch(records, codec=codec)


def test_a_stranger_sees_which_topic_grows_fastest(console: ConsoleClient, client: Cluster) -> None:
    for topic, size in (("grows-little", 10), ("grows-fast", 100_000), ("grows-not", 0)):
        client.create_topic(topic, 1)
        if size:
            client.produce(TopicPartition(topic, 0), [batch([b"x" * size])])
    rows = console.page_when("/topics?q=grows", lambda page: len(page.rows) == 4).rows
    assert [row[0] for row in rows[1:]] == ["grows-fast", "grows-little", "grows-not"]
    heads = rows[0]
    assert heads[:5] == ["Topic", "Partitions", "Records", "Size", "Grows by ▼"]
    assert rows[1][1:3] == ["1", "1"]
    assert rows[1][3] == "97.7 KiB"
    assert rows[1][8] == "7 d"


def test_a_stranger_sees_the_record_at_offset_42(console: ConsoleClient, client: Cluster) -> None:
    fill(client, "answers", [b'{"n": %d}' % number for number in range(60)])
    page = console.get("/topics/answers/records?offset=42&partition=0")
    first = re.search(r"<details open>(.*?)</details>", page.html, re.DOTALL)
    assert first is not None
    assert "{\n  &#34;n&#34;: 42\n}" in first[1]
    assert page.rows[1][1] == "42"
    assert "in a batch of format 2, codec none" in page.text


def test_the_newest_come_first_unless_others_are_asked_for(
    console: ConsoleClient, client: Cluster
) -> None:
    fill(client, "ordered", [b"v%d" % number for number in range(200)])
    path = "/topics/ordered/records?limit=20"
    assert offsets(console, path) == list(range(199, 179, -1))
    assert offsets(console, f"{path}&from=start") == list(range(20))
    assert offsets(console, f"{path}&from=time&time=1700000000150") == list(range(150, 170))
    assert offsets(console, f"{path}&from=time&time=1h") == []
    assert offsets(console, f"{path}&contains=v19") == [*range(199, 189, -1), 19]
    assert offsets(console, f"{path}&from=start&contains=v19") == [19, *range(190, 200)]


def offsets(console: ConsoleClient, path: str) -> list[int]:
    page = console.get(path)
    assert page.status == 200, page.text
    return [int(found) for found in re.findall(r'<th scope="row" class="number">(\d+)', page.html)]


def test_partitions_are_shown_together_by_time(console: ConsoleClient, client: Cluster) -> None:
    client.create_topic("wide", 3)
    for index in range(3):
        records = [(1_700_000_000_000 + 10 * at + index, None, b"%d" % index, ()) for at in (1, 2)]
        client.produce(TopicPartition("wide", index), [build_batch(records)])
    rows = console.get("/topics/wide/records").rows[1:]
    assert [row[0] for row in rows if len(row) == 5] == ["2", "1", "0", "2", "1", "0"]
    assert len(console.get("/topics/wide/records?partition=1").rows) == 3
    refused = console.get("/topics/wide/records?partition=7")
    assert (refused.status, "no partition 7" in refused.text) == (400, True)


@pytest.mark.parametrize(("codec", "name"), [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")])
def test_a_record_names_its_codec(
    console: ConsoleClient, client: Cluster, codec: int, name: str
) -> None:
    client.create_topic(f"in-{name}", 1)
    client.produce(TopicPartition(f"in-{name}", 0), [batch([b"x" * 99], codec=codec)])
    assert f"codec {name}" in console.get(f"/topics/in-{name}/records").text


def test_old_formats_are_shown_as_what_they_are(console: ConsoleClient, client: Cluster) -> None:
    configs = {"message.format.version": "0.10.0"}
    client.create_topic("old", 1, configs)
    messages = build_messages([(5_000, b"k", b"v", ())], magic=1, codec=1)
    client.produce(TopicPartition("old", 0), [messages], magic=1)
    assert "in a message of format 1, codec gzip" in console.get("/topics/old/records").text


def test_what_records_hold_is_never_run(console: ConsoleClient, client: Cluster) -> None:
    client.create_topic("scripts", 1)
    data = SCRIPT.encode()
    records = [(0, data, data, ((SCRIPT, data),)), (0, data, b'{"a": "' + data[:7] + b'"}', ())]
    client.produce(TopicPartition("scripts", 0), [build_batch(records)])
    for view in ("auto", "text", "hex", "json"):
        html = console.get(f"/topics/scripts/records?view={view}").html
        assert "<script>" not in html
        assert "<img src=x" not in html
    page = console.get(f"/topics/scripts/records?contains={quote(SCRIPT)}&q={quote(SCRIPT)}")
    assert page.status == 200
    assert "<script>" not in page.html
    refused = console.get(f"/topics/{quote(SCRIPT, safe='')}")
    assert refused.status == 404
    assert "<script>" not in refused.html


def test_binary_keys_and_half_a_json_are_shown(console: ConsoleClient, client: Cluster) -> None:
    client.create_topic("odd", 1)
    records = [(0, b"\x00\xff\x10", b'{"half": ', (("h", None), ("bytes", b"\x01")))]
    client.produce(TopicPartition("odd", 0), [build_batch(records)])
    page = console.get("/topics/odd/records")
    assert "00 ff 10" in page.text
    assert '{"half":' in page.text
    assert "text, 9 B" in page.text


def test_a_large_value_is_shown_in_part_and_downloaded_whole(
    console: ConsoleClient, client: Cluster
) -> None:
    value = b"a" * 900_000
    fill(client, "large", [value])
    page = console.get("/topics/large/records")
    assert len(page.body) < 200_000
    assert "it has 878.9 KiB in all" in page.text
    found = console.get("/topics/large/partitions/0/offsets/0/value")
    assert found.body == value
    assert found.fields["content-type"] == "application/octet-stream"
    assert found.fields["content-disposition"].startswith("attachment")
    assert console.get("/topics/large/partitions/0/offsets/7/value").status == 404


def test_a_page_of_large_values_has_a_bound(console: ConsoleClient, client: Cluster) -> None:
    client.create_topic("heavy", 1)
    for _ in range(10):
        client.produce(TopicPartition("heavy", 0), [batch([b"<" * 60_000] * 10)])
    page = console.get("/topics/heavy/records?limit=500")
    assert page.text.count("text, 58.6 KiB") == 100
    assert len(page.body) < 6_000_000


def test_a_damaged_batch_is_named_and_the_others_are_shown(
    console: ConsoleClient, client: Cluster, broker: BrokerProcess
) -> None:
    client.create_topic("broken", 1)
    for value in (b"before", b"damaged", b"after"):
        client.produce(TopicPartition("broken", 0), [batch([value])])
    (log,) = (broker.data / "broken-0").glob("*.log")
    data = log.read_bytes()
    with log.open("r+b") as file:
        file.seek(data.index(b"damaged"))
        file.write(b"DAMAGED")
    page = console.get("/topics/broken/records?from=start")
    assert [row[1] for row in page.rows[1:]] == ["0", "1", "2"]
    assert "damaged: its checksum is" in page.text
    assert "after" in page.text


def test_a_batch_of_very_many_records_is_looked_at_from_its_beginning(
    console: ConsoleClient, client: Cluster
) -> None:
    """Kilobytes of a codec are a hundred megabytes of records, each of seven bytes."""
    client.create_topic("bomb", 1)
    rows = [(1_700_000_000_000, None, None, ())] * (RECORDS_OF_A_BATCH_MAX + 10)
    client.produce(TopicPartition("bomb", 0), [batch_of_rows(rows, codec=4)])
    first = console.get("/topics/bomb/records?partition=0&offset=1000&limit=20")
    assert [row[1] for row in first.rows[1:21]] == [str(1_000 + at) for at in range(20)]
    behind = console.get(f"/topics/bomb/records?partition=0&offset={RECORDS_OF_A_BATCH_MAX + 1}")
    assert f"the batch goes on to offset {len(rows) - 1}" in behind.text
    assert "triglot consume reads all" in behind.text


def test_a_record_with_very_many_headers_is_named_and_the_others_are_shown(
    console: ConsoleClient, client: Cluster
) -> None:
    client.create_topic("headers", 1)
    for count in (HEADERS_SHOWN + 1, HEADERS_MAX + 1):
        records = [(0, None, b"v", (("name", b"h"),) * count)]
        client.produce(TopicPartition("headers", 0), [build_batch(records)])
    page = console.get("/topics/headers/records")
    assert f"not opened: a record has {HEADERS_MAX + 1} headers" in page.text
    assert f"The first {HEADERS_SHOWN} of {HEADERS_SHOWN + 1}." in page.text


def test_a_filter_that_never_matches_ends_and_says_how_far_it_came(
    console: ConsoleClient, client: Cluster
) -> None:
    client.create_topic("haystack", 1)
    for _ in range(11):
        client.produce(TopicPartition("haystack", 0), [batch([b"hay"] * 5_000, codec=4)])
    page = console.get("/topics/haystack/records?partition=0&from=start&contains=needle")
    assert page.status == 200
    assert "Stopped after" in page.text
    assert re.search(r"Go on from offset \d+", page.text)
    path = "/topics/haystack/records?partition=0&offset=54990&contains=needle"
    console.page_when(path, lambda page: "None of the" in page.text)


def test_a_topic_that_is_deleted_while_it_is_shown_is_gone_in_a_sentence(
    console: ConsoleClient, client: Cluster
) -> None:
    for path in ("/topics/gone", "/topics/gone/records", "/topics/gone/records?from=start"):
        page = console.get(path)
        assert (page.status, "there is no topic" in page.text) == (404, True), page.text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("offset=x", "offset: wanted a whole number"),
        ("offset=" + "9" * 5_000, "offset: wanted a whole number"),
        ("from=nowhere", "from: wanted end, start, offset, time"),
        ("from=time&time=noon", "time: wanted how long ago"),
        ("view=xml", "view: wanted auto, json, text, hex"),
        ("limit=0", "limit: wanted a whole number from 1 to 500"),
    ],
)
def test_a_question_that_makes_no_sense_is_answered_by_what_was_wanted(
    console: ConsoleClient, client: Cluster, query: str, said: str
) -> None:
    if "asked" not in client.topics():
        client.create_topic("asked", 1)
    page = console.get(f"/topics/asked/records?{query}")
    assert (page.status, said in page.text) == (400, True), page.text


def test_offsets_that_are_not_there_are_told_with_those_that_are(
    console: ConsoleClient, client: Cluster
) -> None:
    fill(client, "short", [b"a", b"b"])
    page = console.get("/topics/short/records?offset=42")
    assert "short-0 has no offset 42: it has 0 to 1" in page.text
    client.create_topic("none", 1)
    page = console.get("/topics/none/records?offset=42")
    assert "is empty; the next record gets offset 0" in page.text


def test_a_topic_shows_its_partitions_and_where_its_settings_come_from(
    console: ConsoleClient, client: Cluster
) -> None:
    client.create_topic("set", 2, {"retention.ms": "3600000"})
    page = console.get("/topics/set")
    assert ["0", "0", "0", "0"] in [row[:4] for row in page.rows]
    assert ["retention.ms", "3600000", "set for this topic"] in page.rows
    assert ["cleanup.policy", "delete", "default"] in page.rows


def test_topics_that_do_not_fit_in_one_answer_are_all_listed(
    console: ConsoleClient, client: Cluster
) -> None:
    """More partitions than the broker is asked for at once."""
    for topic in ("many-b", "many-a", "many-c"):
        client.create_topic(topic, PIECE_PARTITIONS + 1)
    path = "/topics?q=many-&sort=name"
    rows = console.page_when(path, lambda page: len(page.rows) == 4).rows
    told = [(row[0], row[1]) for row in rows[1:]]
    assert told == [(f"many-{letter}", str(PIECE_PARTITIONS + 1)) for letter in "abc"]


def test_a_topic_that_was_deleted_is_listed_no_more(
    console: ConsoleClient, client: Cluster, broker: BrokerProcess
) -> None:
    client.create_topic("soon-gone", 1)
    console.page_when("/topics?q=soon-gone", lambda page: len(page.rows) == 2)
    with Caller(broker.host, broker.port) as caller:
        caller.delete_topic("soon-gone")
    page = console.page_when("/topics?q=soon-gone", lambda page: not page.rows)
    assert "No topic has" in page.text
