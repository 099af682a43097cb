"""A single-node broker for Apache Kafka clients, and bulk work on topics with Apache Spark.

    triglot serve, triglot --help                       the command line
    from triglot.pipeline.source import register        the data source for Spark

The packages are flat in the checkout (`broker`, `storage`, ...) and below this one when installed.
"""

# Installed as triglot/__init__.py and as triglot/__main__.py; setup.py says how.

import sys


def main() -> int:
    """Run the command line of the installed broker and return its exit status."""
    from tools.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
