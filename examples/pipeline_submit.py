"""Counts the records of a topic per key, on a cluster: a program for spark-submit.

    spark-submit --master spark://host:7077 pipeline_submit.py broker:9092 orders

Where the driver runs, `pip install triglot[pipeline]`; the executors need pyarrow, numpy and the
codecs, and are sent the rest. The broker must be reachable from them by the address it advertises.
"""

import sys

from pyspark.sql import SparkSession
from triglot.pipeline.shipping import ship
from triglot.pipeline.source import register


def main(servers: str, topic: str) -> None:
    spark = SparkSession.builder.appName("records per key").getOrCreate()
    ship(spark)
    register(spark)
    records = (
        spark.read.format("triglot")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("minPartitions", spark.sparkContext.defaultParallelism)
        .load()
    )
    for row in records.groupBy("key").count().orderBy("key").collect():
        print(f"{bytes(row['key'] or b'').decode(errors='replace')}: {row['count']}", flush=True)
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: spark-submit pipeline_submit.py HOST:PORT TOPIC")
    main(sys.argv[1], sys.argv[2])
