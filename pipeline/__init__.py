"""Bulk work on topics, on Apache Spark through PySpark. docs/pipeline.md is for those who use it.

    source, session, shipping   the ways in: `format("triglot")`, a session, our code on a cluster
    jobs        archive, replay, mirror, audit, stream: what to do, checked before a JVM starts
    console     `triglot pipeline ...`: flags, progress, reports; `cli` begins it
    spark       tasks on ranges of offsets, Spark's checkpoints and failures, Java
    dataframes  the readers and writers of the data source
    archiving   Parquet files, and what makes them part of an archive
    delivering  record sets into a partition, each once
    reading     what to read, and reading it
    columns     record batches to and from Arrow
    client      brokers of every age
    state, filesystem, left_out, outcome, schemas, errors   what all of them share

Nothing here is imported by a broker, and importing this package imports neither Spark nor Arrow.
"""
