"""Asks Apache Kafka every question in the name of every user, and writes `answers.txt`.

    python -m tests.clients.access.record_answers [3.9.1] [4.3.1]

One release at a time; without names, all. The answers of others stay as they are.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.clients.access import answers
from tests.clients.access.asking import tell_all
from tests.clients.access.questions import QUESTIONS
from tests.clients.access.servers import RELEASES, KafkaWithUsers
from tests.clients.access.users import USERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", help="of " + ", ".join(RELEASES))
    for name in parser.parse_args().releases or list(RELEASES):
        with (
            tempfile.TemporaryDirectory() as folder,
            KafkaWithUsers(Path(folder), name) as kafka,
        ):
            told = tell_all(kafka)
        text = answers.FILE.read_text(encoding="utf-8") if answers.FILE.exists() else ""
        table = answers.read(text, USERS)
        table[name] = told
        titles = [question.title for question in QUESTIONS]
        answers.FILE.write_text(answers.write(table, titles), encoding="utf-8")
        print(f"{name}: {len(told)} questions of {len(USERS)} users", flush=True)


if __name__ == "__main__":
    main()
