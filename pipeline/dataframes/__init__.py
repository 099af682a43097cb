"""What Spark's readers and writers of `format("triglot")` do, in the driver and in tasks."""
