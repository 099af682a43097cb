"""Metrics of jobs and of users' queries, as a scraper gets them."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipeline import cli, errors, metrics
from pipeline.console.progress import Status
from pipeline.left_out import LeftOut
from pipeline.outcome import BatchDone
from tests.pipeline.archive_runs import made
from tests.support.caller import Caller
from tests.support.compacted import wait_until
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess


def scraped(port: int) -> dict[str, float]:
    """Samples by their names and the values of their labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_what_a_job_has_done_and_how_far_it_is_behind_is_on_the_page() -> None:
    registry = metrics.new_registry()
    view = metrics.JobMetrics("archive", registry, clock=lambda: 1234.0)
    left_out = LeftOut(offsets_missing=3)

    def done(number: int) -> BatchDone:
        return BatchDone(number, 40, 900, 2.5, left_out=left_out, details={"files": 2})

    with metrics.served("127.0.0.1:0", registry) as port:
        view.show(Status("archive", 10.0, offsets=50, lag=100), done(0))
        view.show(Status("archive", 12.0, offsets=50, lag=100), None)
        found = scraped(port)
        assert found["triglot_pipeline_records_total archive"] == 40
        assert found["triglot_pipeline_bytes_total archive"] == 900
        assert found["triglot_pipeline_batch_seconds_total archive"] == 2.5
        assert found["triglot_pipeline_counted_total archive files"] == 2
        assert found["triglot_pipeline_left_out_total archive offsets_missing"] == 3
        assert found["triglot_pipeline_last_batch_timestamp_seconds archive"] == 1234
        assert found["triglot_pipeline_lag_records archive"] == 100
        assert found["triglot_pipeline_lag_seconds archive"] == 2

        # At 14 s it has done what was there at 10 s, and there is more since.
        view.show(Status("archive", 14.0, offsets=150, lag=20), done(1))
        view.show(Status("archive", 17.0, offsets=150, lag=20), None)
        found = scraped(port)
        assert found["triglot_pipeline_batches_total archive"] == 2
        assert found["triglot_pipeline_lag_records archive"] == 20
        assert found["triglot_pipeline_lag_seconds archive"] == 3

        view.show(Status("archive", 18.0, offsets=170, lag=0), done(2))
        assert scraped(port)["triglot_pipeline_lag_seconds archive"] == 0


def test_a_place_that_cannot_be_listened_on_is_one_line() -> None:
    with pytest.raises(errors.WrongUse, match=r"HOST:PORT like .*, found '9108'"):
        metrics.address_of("9108")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(errors.Refused, match=f"cannot listen on {address} .* in use"),
            metrics.served(address, metrics.new_registry()),
        ):
            pass


@pytest.mark.long
def test_a_command_answers_while_it_runs(
    broker: BrokerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    port = free_port()
    seen: list[float] = []
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(0.02):
            with contextlib.suppress(OSError):
                seen.append(scraped(port)["triglot_pipeline_records_total archive"])

    with Caller(broker.host, broker.port) as caller:
        topic = made(caller)
        topic.write(3)
        scraper = threading.Thread(target=scrape)
        scraper.start()
        try:
            code = cli.main(
                [
                    *("archive", "--from", broker.bootstrap, "--topic", topic.name, "--quiet"),
                    *("--to", str(tmp_path / "lake"), "--max-offsets", "20"),
                    *("--metrics", f"127.0.0.1:{port}"),
                ]
            )
        finally:
            over.set()
            scraper.join()
    assert code == 0
    assert max(seen) in (20, 40, 60)


@pytest.mark.long
def test_a_query_of_the_user_s_is_on_the_page(
    broker: BrokerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    with Caller(broker.host, broker.port) as caller, metrics.listen(spark, "127.0.0.1:0") as port:
        topic = made(caller)
        topic.write(3)
        stream = (
            spark.readStream.format("triglot")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", topic.name)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "20")
            .load()
        )
        query = (
            stream.writeStream.format("noop")
            .queryName(topic.name)
            .option("checkpointLocation", str(tmp_path / "state"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        name = f"triglot_query_rows_total {topic.name}"
        wait_until(lambda: scraped(port).get(name) == 60, "the last progress")
        found = scraped(port)
        assert found[f"triglot_query_lag_records {topic.name}"] == 0
        assert found[f"triglot_query_batches_total {topic.name}"] >= 3
        wait_until(lambda: scraped(port)["triglot_query_running"] == 0, "the end")
        assert scraped(port)["triglot_query_failed_total"] == 0


def test_the_lag_of_a_source_is_what_its_progress_tells() -> None:
    class Source:
        latestOffset = '{"a": {"0": 10, "1": 5}, "b": {"0": 7}}'
        endOffset = '{"a": {"0": 4, "1": 5}}'

    assert metrics.lag_of(Source) == 6
    Source.latestOffset = ""
    assert metrics.lag_of(Source) == 0
