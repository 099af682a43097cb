"""What the help of each job says: examples first, then what it does and what it never does."""

from __future__ import annotations

ARCHIVE = """\
  triglot pipeline archive --from localhost:9092 --topic orders --to lake/orders
  triglot pipeline archive --from localhost:9092 --topics 'orders.*' --to lake/raw --shape batches
  triglot pipeline archive --from localhost:9092 --topic orders --to lake/orders --every 30s
  triglot pipeline archive --path data --topic orders --to lake/orders --table delta
  triglot pipeline archive --from localhost:9092 --topics '.*' --to 'lake/{topic}' --state state \\
      --table delta --partition-by date
  triglot pipeline archive --from localhost:9092 --topic orders --to lake/orders --table iceberg \\
      --name shop.orders --catalog-option type=sql --catalog-option uri=sqlite:///catalog.db
  triglot pipeline archive --from localhost:9092 --topic users --to lake/users --table delta \\
      --mode upsert
  triglot pipeline archive --from localhost:9092 --topic orders --to lake/orders --value avro \\
      --registry http://localhost:8081 --dead-letters lake/orders-dead

Writes topics to Parquet files: a row per record with the columns of Spark's Kafka connector, or
with --shape batches a row per stored batch, still compressed. Each record is there exactly once,
also after a crash: what has been done is kept in _state below the folder (or --state), and the same
command goes on from there. With --mode upsert the table has one row for each key: its newest
record, merged by offset; a record without a value deletes the row.
With --value (and --key) there is a column for each field, beside
Kafka's: docs/values.md.

It never changes the topics, never deletes a file of the archive, and never mixes two archives in a
folder.
"""

AUDIT = """\
  triglot pipeline audit --from old:9092
  triglot pipeline audit --path data --topic orders --json
  triglot pipeline audit --from localhost:9092 --topic orders --rules rules.toml --report run.html
  triglot pipeline audit --archive lake/orders --rules rules.toml

Reads the headers of all batches and says what there is: formats, codecs, checksums that are wrong,
holes in the offsets, timestamps that go backwards, sizes, and what stops these topics from moving
to Apache Kafka 4. Without --topic and --topics it looks at all of them.

With --rules FILE it reads the records instead, of topics or of an archive (--archive DIR), and says
which of them break the rules in that file (docs/rules.md): required fields, ranges, values, what is
unique, gaps in time. It exits with 15 if any do.

With --against-table it compares a table of newest values with its topics instead, up to the
offsets that the table tells, and exits with 13 if they differ.

It never changes anything, and keeps no state.
"""

MIRROR = """\
  triglot pipeline mirror --from old:9092 --to new:9092 --topic orders --state state/orders
  triglot pipeline mirror --from old:9092 --to new:9092 --topics '.*' --state state/all --every 5s
  triglot pipeline mirror --from old:9092 --to new:9092 --topic a --rename 'old.{topic}' --state s

Copies topics from one cluster to another, from brokers of any age, batches as they are: still
compressed, same bytes, same partitions, same order. Topics that are not there are made with the
settings of the source's. Each record arrives exactly once, also after a crash: what has been done
is kept in --state, and the same command goes on from there.

It never changes the source, never writes behind records that are not its own unless told to
--append, and never copies consumer groups. Offsets at the destination are its own.
"""

REPLAY = """\
  triglot pipeline replay --from lake/orders --to localhost:9092
  triglot pipeline replay --from lake/raw --to localhost:9092 --topic a --rename 'again.{topic}'
  triglot pipeline replay --from lake/raw --to localhost:9092 --since 2026-11-01 --until 2026-11-02
  triglot pipeline replay --from lake/raw --to localhost:9092 --transactional-id nightly
  triglot pipeline replay --from lake/orders --to localhost:9092 --rename 'wide.{topic}' \\
      --transactional-id wide --partitions by-key
  triglot pipeline replay --from lake/orders --to localhost:9092 --speed 10x --longest-wait 1m

Writes an archive back to topics: all of it, or a stretch of time or of offsets. Each partition goes
to the partition of the same number, in order, with its records' times; archived batches go back
without being decompressed. Each record is written exactly once, also after a crash: the same
command goes on, and does nothing once it is done, unless told to do it --again.

With --partitions by-key records go to the partitions that their keys choose, as Kafka's own
producer has it.

With --speed each record comes when its time says, those of all partitions by one clock; what is
late comes at once.

With --transactional-id it writes in transactions: readers of committed records see nothing of what
an attempt that was killed had begun, and nothing in the topic has to be compared.

It never changes the archive, and never deletes anything from a topic: it writes behind what is
there.
"""

MAINTAIN = """\
  triglot pipeline maintain --from lake/orders --dry-run
  triglot pipeline maintain --from lake/orders --file-bytes 268435456 --keep 24h

Puts the small files of a Delta or Iceberg table together that archive has written, expires
snapshots, and deletes files that are no longer part of it and older than --keep (7 days). It runs
here, without Spark, and an archive that is running has to be stopped for it.

It never changes a record, and what was archived is neither lost nor archived again.
"""

STREAM = """\
  triglot pipeline stream --from localhost:9092 --topic orders --to counts --to-topic counts
  triglot pipeline stream --from localhost:9092 --topic orders --to counts --to-topic counts \\
      --window 5m --delay 1m --every 10s

An example to copy: records and bytes per key and window of event time, written when a watermark
closes the window, to Parquet files (exactly once) and to a topic (at least once). The code is
pipeline/jobs/stream.py.

It never changes the topics that it reads, and never makes the topic that it writes to.
"""
