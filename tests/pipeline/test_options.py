"""The options of a reader: the connector's names and values, and one line for what is wrong."""

from __future__ import annotations

import pickle

import pytest

from client.cluster import EARLIEST, LATEST, TopicPartition
from pipeline.errors import NoSuchTopic, WrongUse
from pipeline.reading.options import NAMES, REFUSED, WITHOUT_MEANING, SourceOptions
from pipeline.reading.source import Bound
from tests.support.fake_source import FakeSource

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FEWEST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def parse(streaming: bool | None = None, /, **options: str) -> SourceOptions:
    return SourceOptions.parse(FEWEST | options, streaming=streaming)


def test_a_stream_begins_at_the_end_and_a_bounded_read_at_the_beginning() -> None:
    assert parse(True).starting == Bound("startingOffsets", LATEST)
    assert parse(False).starting == Bound("startingOffsets", EARLIEST)
    assert parse().ending == Bound("endingOffsets", LATEST)


def test_names_and_fixed_values_count_in_any_case() -> None:
    options = parse(STARTINGOFFSETS="Earliest", includeheaders="TRUE", Shape="Batches")
    assert options.starting.everywhere == EARLIEST
    assert options.include_headers
    assert options.shape == "batches"


def test_offsets_of_partitions_are_json_with_minus_one_and_minus_two() -> None:
    options = parse(startingOffsets='{"orders":{"0":23,"1":-2},"items":{"0":-1}}')
    items = TopicPartition("items", 0)
    assert options.starting.each == {ORDERS_0: 23, ORDERS_1: EARLIEST, items: LATEST}


def test_a_time_goes_before_times_of_partitions_and_these_before_offsets() -> None:
    offsets = {"startingOffsets": "latest"}
    times = offsets | {"startingOffsetsByTimestamp": '{"orders":{"0":5}}'}
    time = times | {"startingTimestamp": "7"}
    assert parse(**offsets).starting == Bound("startingOffsets", LATEST)
    each = {ORDERS_0: 5}
    assert parse(**times).starting == Bound("startingOffsetsByTimestamp", each=each, is_time=True)
    assert parse(**time).starting == Bound("startingTimestamp", 7, is_time=True)
    assert parse(endingTimestamp="9", endingOffsets="latest").ending.everywhere == 9


def test_data_loss_that_does_not_fail_is_a_gap_that_is_skipped() -> None:
    assert parse().on_gap == "fail"
    assert parse(failOnDataLoss="false").on_gap == "skip"
    assert parse(onGap="skip").on_gap == "skip"
    with pytest.raises(WrongUse, match="failOnDataLoss=true and onGap=skip contradict"):
        parse(failOnDataLoss="true", onGap="skip")


def test_numbers_and_the_rest_are_taken() -> None:
    options = parse(
        maxOffsetsPerTrigger="1000",
        minPartitions="8",
        maxRecordsPerPartition="500",
        fetchBytes="65536",
        commitGroup="lag",
        onCorrupt="skip",
        **{"kafka.isolation.level": "read_committed", "kafkaConsumer.pollTimeoutMs": "1500"},
    )
    assert options.max_offsets_per_trigger == 1000
    assert (options.min_partitions, options.max_records_per_partition) == (8, 500)
    assert (options.fetch_bytes, options.commit_group) == (65536, "lag")
    assert (options.on_corrupt, options.committed_only) == ("skip", True)
    assert options.timeout_s == 1.5


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("startingOffset", "did you mean startingOffsets?"),
        ("subscribePatern", "did you mean subscribePattern?"),
        ("topics", "did you mean subscribe?"),
        ("bootstrap.servers", "did you mean kafka.bootstrap.servers?"),
        ("kafka.isolation.levl", "did you mean kafka.isolation.level?"),
        ("zzz", "known are kafka.bootstrap.servers"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_known(given: str, hint: str) -> None:
    with pytest.raises(WrongUse) as raised:
        parse(**{given: "x"})
    assert given.lower() in str(raised.value)
    assert hint in str(raised.value)


@pytest.mark.parametrize("name", [*REFUSED, "kafka.sasl.mechanism", "kafka.ssl.truststore.type"])
def test_what_is_not_supported_is_refused_by_name(name: str) -> None:
    with pytest.raises(WrongUse, match=name.lower()):
        parse(**{name: "1"})


def test_security_stands_in_a_file() -> None:
    parse(**{"kafka.security.protocol": "PLAINTEXT"})
    with pytest.raises(WrongUse, match="commandConfig"):
        parse(**{"kafka.security.protocol": "SASL_SSL"})


def test_tuning_of_a_consumer_that_is_not_there_changes_nothing() -> None:
    assert parse(**dict.fromkeys(WITHOUT_MEANING, "17")) == parse()


def test_no_option_is_both_known_and_refused() -> None:
    known = {name.lower() for name in (*NAMES, *WITHOUT_MEANING)}
    assert len(known) == len(NAMES) + len(WITHOUT_MEANING)
    assert not known & set(REFUSED)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"startingOffsets": "beginning"}, "startingOffsets is 'beginning', wanted is earliest"),
        ({"startingOffsets": '{"orders":5}'}, "topic orders has 5"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "orders-0 has -3"),
        ({"startingOffsets": '{"orders":{"0":true}}'}, "orders-0 has True"),
        ({"startingOffsets": '{"orders":{"x":1}}'}, "orders has no partition 'x'"),
        ({"startingOffsets": '{"orders":{"' + "9" * 5000 + '":1}}'}, "orders has no partition"),
        ({"startingOffsets": '{"orders":{"0":' + "9" * 5000 + "}}"}, "startingOffsets is"),
        ({"startingOffsets": "{}"}, "names no partition"),
        ({"startingOffsets": "[" * 100_000}, "wanted is earliest"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'}, "orders-0 has -1"),
        ({"startingTimestamp": "yesterday"}, "'yesterday', wanted is a whole number"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "error or latest"),
        (
            {"startingTimestamp": "9", "endingTimestamp": "8"},
            "Timestamp is 9, and endingTimestamp 8",
        ),
        ({"minPartitions": "0"}, "minPartitions is 0, wanted is 1 to"),
        ({"maxOffsetsPerTrigger": "9" * 5000}, "wanted is a whole number"),
        ({"includeHeaders": "yes"}, "true or false"),
        ({"shape": "rows"}, "records or batches or ranges"),
        ({"fetchBytes": "1"}, "wanted is 1024 to"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "cannot end at the earliest"),
        ({"path": "/data"}, "exclude each other"),
        ({"assign": '{"orders":[0]}'}, "found subscribe and assign"),
        ({"commitGroup": ""}, "commitGroup is empty"),
    ],
)
def test_a_wrong_value_is_told_with_what_was_wanted(options: dict[str, str], line: str) -> None:
    with pytest.raises(WrongUse) as raised:
        parse(**options)
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "kafka.bootstrap.servers, or path"),
        ({"path": "/data"}, "found none"),
        ({"path": "/data", "subscribe": ","}, "names of topics"),
        ({"path": "/data", "subscribePattern": "("}, "no regular expression"),
        ({"path": "/data", "assign": "orders"}, 'wanted is JSON like {"orders":[0,1]}'),
        ({"path": "/data", "assign": '{"orders":["0"]}'}, "topic orders has ['0']"),
        ({"path": "/data", "assign": '{"orders":[]}'}, "names no partition"),
        ({"path": "/data", "subscribe": "orders", "commitGroup": "g"}, "needs a broker"),
    ],
)
def test_what_is_to_be_read_has_to_be_said(options: dict[str, str], line: str) -> None:
    with pytest.raises(WrongUse) as raised:
        SourceOptions.parse(options)
    assert line in str(raised.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(WrongUse, match=f"option {name}: a stream has no end"):
        parse(True, **{name: "latest"})


@pytest.mark.parametrize("text", ["latest", '{"orders":{"0":-1}}'])
def test_a_bounded_read_does_not_begin_at_the_end(text: str) -> None:
    with pytest.raises(WrongUse, match="cannot begin at the latest"):
        parse(False, startingOffsets=text)
    parse(True, startingOffsets=text)


def test_options_are_pickled() -> None:
    options = parse(startingOffsets='{"orders":{"0":5}}')
    assert pickle.loads(pickle.dumps(options)) == options


# Which partitions


@pytest.fixture
def source() -> FakeSource:
    source = FakeSource()
    for topic, count in {"orders": 2, "orders-late": 1, "items": 1}.items():
        for number in range(count):
            source.log(topic, number)
    return source


def test_a_pattern_has_to_match_the_whole_name(source: FakeSource) -> None:
    options = SourceOptions.parse({"path": "/data", "subscribePattern": "ord.rs"})
    assert options.select(source) == [ORDERS_0, ORDERS_1]
    nothing = SourceOptions.parse({"path": "/data", "subscribePattern": "ord"})
    assert nothing.select(source) == []


def test_topics_and_assigned_partitions_have_to_be_there(source: FakeSource) -> None:
    assert parse(subscribe="items, orders").select(source) == [
        TopicPartition("items", 0),
        ORDERS_0,
        ORDERS_1,
    ]
    with pytest.raises(NoSuchTopic):
        parse(subscribe="orders,absent").select(source)
    assigned = SourceOptions.parse({"path": "/data", "assign": '{"orders":[1]}'})
    assert assigned.select(source) == [ORDERS_1]
    absent = SourceOptions.parse({"path": "/data", "assign": '{"orders":[1,7]}'})
    with pytest.raises(NoSuchTopic, match="assign names orders-7"):
        absent.select(source)


def test_what_was_deleted_meanwhile_is_left_out(source: FakeSource) -> None:
    gone = TopicPartition("gone", 0)
    assert parse(subscribe="orders,gone").select(source, known=[ORDERS_0, gone]) == [
        ORDERS_0,
        ORDERS_1,
    ]
    with pytest.raises(NoSuchTopic, match="absent"):
        parse(subscribe="orders,gone,absent").select(source, known=[ORDERS_0, gone])


@pytest.mark.parametrize(
    "selection",
    [{"subscribe": "orders,gone"}, {"assign": '{"orders":[0,1,7],"gone":[0]}'}],
)
def test_a_stream_that_skips_gaps_goes_on_without_what_was_deleted_earlier(
    source: FakeSource, selection: dict[str, str]
) -> None:
    skipping = SourceOptions.parse({"path": "/data", **selection, "onGap": "skip"})
    for known in ([ORDERS_0], []):
        assert skipping.select(source, known=known) == [ORDERS_0, ORDERS_1]
    with pytest.raises(NoSuchTopic):
        skipping.select(source)
