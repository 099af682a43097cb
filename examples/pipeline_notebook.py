# %% [markdown]
# # A topic in Spark
#
# Open it as a notebook (Jupyter with Jupytext, VS Code, PyCharm) and run a cell at a time, or run
# all of it: `python pipeline_notebook.py`. It needs a broker with records in the topic `demo`
# (`python producer.py` writes some) and `pip install triglot[pipeline]`. In a checkout, import
# `pipeline` where `triglot.pipeline` stands here.

# %%
import os
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from triglot.pipeline.console.progress import Progress, Silence
from triglot.pipeline.console.report import as_html
from triglot.pipeline.jobs.archive import archive
from triglot.pipeline.source import register

SERVERS = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")
TOPIC = os.environ.get("TOPIC", "demo")
FOLDER = Path(os.environ.get("FOLDER", "lake"))

# %% [markdown]
# Any session will do: this one, on the cores of this machine, or that of your cluster. `register`
# makes `format("triglot")` known to it; no jar is needed.

# %%
spark = (
    SparkSession.builder.master("local[*]")
    .appName("notebook")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
register(spark)
topic = {"kafka.bootstrap.servers": SERVERS, "subscribe": TOPIC}

# %% [markdown]
# ## Look at it
#
# Columns and options are those of Spark's Kafka connector: a query of it runs here by its format.

# %%
records = spark.read.format("triglot").options(**topic).option("includeHeaders", "true").load()
records.printSchema()
records.selectExpr("offset", "timestamp", "cast(key as string)", "cast(value as string)").show(5)

# %% [markdown]
# ## Add it up
#
# Per key, and per minute of the records' own time.

# %%
per_key = (
    records.groupBy(F.col("key").cast("string").alias("key"))
    .agg(F.count("*").alias("records"), F.max("offset").alias("newest"))
    .orderBy("key")
)
per_key.show()
records.groupBy(F.window("timestamp", "1 minute").start.alias("minute")).count().show()

# %% [markdown]
# ## How it is stored
#
# The shape `batches` has a row for each stored batch, whose records are not even unpacked.

# %%
batches = spark.read.format("triglot").options(**topic).option("shape", "batches").load()
batches.groupBy("magic", "codec").agg(
    F.count("*").alias("batches"),
    F.sum("records").alias("records"),
    F.sum(F.length("batch")).alias("bytes"),
).show()

# %% [markdown]
# ## Keep it
#
# Into Parquet files, each record once however often this is run, with a report of the run.

# %%
progress = Progress("archive", Silence())
outcome = archive(str(FOLDER / TOPIC), servers=SERVERS, topics=[TOPIC], spark=spark, watch=progress)
print(outcome.line())
(FOLDER / "report.html").write_text(as_html(outcome, progress.samples), encoding="utf-8")

# %%
kept = spark.read.parquet(str(FOLDER / TOPIC))
print(f"{kept.count()} records kept, {records.count()} in the topic")

# %%
spark.stop()
