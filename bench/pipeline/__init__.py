"""What the pipeline takes, against Spark's own means in one run: `python -m bench.pipeline`."""
