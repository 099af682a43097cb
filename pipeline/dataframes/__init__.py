"""Spark's readers and writers of `format("triglot")`, in the driver and in tasks."""
