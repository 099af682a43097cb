"""The jobs of the pipeline. Each module is one: its parameters, checks and a function of its name.

archive   topics to Parquet, Delta or Iceberg
replay    an archive back to topics
mirror    topics to another cluster, batches as they are
audit     what is in a cluster's logs, by their headers
stream    an example of event time: counts per key and window
"""
