"""Tells the scripts to Apache Kafka and writes what it answers into `answers.txt`.

    python -m tests.clients.transactions.record_answers [3.9.1] [4.3.1-tv1] ...

One release at a time; without names, all. The answers of others stay as they are.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.clients.transactions import answers
from tests.clients.transactions.brokers import REFERENCES, apache_kafka, scripts_for
from tests.clients.transactions.scripts import read_scripts
from tests.clients.transactions.telling import prepare, tell_all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("references", nargs="*", help="of " + ", ".join(REFERENCES))
    names = parser.parse_args().references or list(REFERENCES)
    scripts = read_scripts()
    for name in names:
        with tempfile.TemporaryDirectory() as folder, apache_kafka(name, Path(folder)) as kafka:
            prepare(kafka, REFERENCES[name].level_to_set)
            told = answers.comparable(tell_all(kafka, scripts_for(name, scripts)))
        text = answers.FILE.read_text(encoding="utf-8") if answers.FILE.exists() else ""
        table = answers.read(text, scripts)
        table[name] = told
        answers.FILE.write_text(answers.write(table, scripts), encoding="utf-8")
        print(f"{name}: {sum(map(len, told.values()))} answers to {len(told)} scripts", flush=True)


if __name__ == "__main__":
    main()
