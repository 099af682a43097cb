"""Has Apache Kafka judge every question, and writes `verdicts.json`.

    python -m tests.clients.bearer.record_verdicts [3.9.1] [4.3.1]

One release at a time; without names, all. The verdicts of others stay as they are.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from tests.clients.bearer.judging import judge_all
from tests.clients.bearer.servers import RELEASES, KafkaWithTokens
from tests.clients.bearer.tokens import QUESTIONS

FILE = Path(__file__).with_name("verdicts.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", help="of " + ", ".join(RELEASES))
    for name in parser.parse_args().releases or list(RELEASES):
        with (
            tempfile.TemporaryDirectory() as folder,
            KafkaWithTokens(Path(folder), name) as kafka,
        ):
            found = judge_all(kafka)
        whole = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
        whole[name] = found
        kept = {
            release: {one.title: told[one.title] for one in QUESTIONS if one.title in told}
            for release, told in sorted(whole.items())
        }
        text = json.dumps(kept, indent=1, ensure_ascii=False)
        FILE.write_text(f"{text}\n", encoding="utf-8")
        print(f"{name}: {len(found)} verdicts", flush=True)


if __name__ == "__main__":
    main()
