"""The cost of the pipeline, against Spark's own means in one run: `python -m bench.pipeline`."""
