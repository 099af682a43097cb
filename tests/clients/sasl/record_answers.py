"""Tells Apache Kafka and us every script, and writes `answers.txt`.

    python -m tests.clients.sasl.record_answers [3.9.1] [4.3.1] [triglot]

One broker at a time; without names, all. The answers of others stay as they are.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.clients.sasl import answers
from tests.clients.sasl.conversation import tell_all
from tests.clients.sasl.scripts import SCRIPTS
from tests.clients.sasl.servers import OURS, RELEASES, BrokerWithSasl, KafkaWithSasl, Server

BROKERS = [*RELEASES, OURS]


def start(folder: Path, name: str) -> Server:
    """The broker, to be started by `with`."""
    return BrokerWithSasl(folder / "data") if name == OURS else KafkaWithSasl(folder, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("brokers", nargs="*", help="of " + ", ".join(BROKERS))
    for name in parser.parse_args().brokers or BROKERS:
        with tempfile.TemporaryDirectory() as folder, start(Path(folder), name) as server:
            told = tell_all(server, SCRIPTS)
        text = answers.FILE.read_text(encoding="utf-8") if answers.FILE.exists() else ""
        table = answers.read(text)
        table[name] = told
        titles = [script.title for script in SCRIPTS]
        answers.FILE.write_text(answers.write(table, titles), encoding="utf-8")
        print(f"{name}: {len(told)} scripts", flush=True)


if __name__ == "__main__":
    main()
