"""An archive written back with its partitions chosen anew, by key, as the page says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from client.cluster import Cluster, TopicPartition
from pipeline.dataframes.partitioner import by_key
from protocol.records.builder import build_batch
from tests.pipeline.mirroring import archive, records, stored

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess

NOW_MS = 1_700_000_000_000


@pytest.mark.long
def test_records_go_to_the_partition_of_their_key_in_order_and_once(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    with Cluster(broker.bootstrap) as cluster:
        for name, partitions in (("keyed", 2), ("keyed-anew", 5)):
            cluster.create_topic(name, partitions)
        for number in range(60):
            row = (NOW_MS + number, b"key %d" % (number % 7), b"%d" % number, ())
            place = TopicPartition("keyed", number % 7 % 2)
            cluster.produce(place, [build_batch([row])])
    lake = archive(broker.bootstrap, "keyed", tmp_path / "lake", shape="records")

    for _ in range(2):  # written once, also if it is done again
        rows = spark.read.parquet(lake).repartition("key")
        rows = rows.sortWithinPartitions("partition", "offset")
        rows = rows.select("key", "value", "headers", "timestamp")
        rows.write.format("triglot").mode("append").options(
            **{"kafka.bootstrap.servers": broker.bootstrap, "topic": "keyed-anew"},
            transactionalId="by-key",
            transactionalEpoch="1",
        ).save()

    found: list[int] = []
    for partition in range(5):
        values: dict[bytes, list[int]] = {}
        for one in records(stored(broker.bootstrap, "keyed-anew", partition)):
            assert one.key is not None
            assert one.value is not None
            assert by_key(pa.array([one.key]), 5)[0] == partition
            assert one.timestamp_ms == NOW_MS + int(one.value)
            values.setdefault(one.key, []).append(int(one.value))
        assert all(some == sorted(some) for some in values.values())
        found += [value for some in values.values() for value in some]
    assert sorted(found) == list(range(60))
