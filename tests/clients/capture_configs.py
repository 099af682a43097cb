"""Writes down what Apache Kafka 3.9 answers to DescribeConfigs, for tests/config.

    python -m tests.clients.capture_configs

Rows that its start set, the ports and folders of this machine, are kept without their values.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.support.broker_changes import TOPIC, described, synonyms
from tests.support.caller import Caller
from tests.support.kafka_process import KafkaProcess

INTO = Path(__file__).resolve().parents[1] / "config" / "kafka_3_9_described.json"
OF_THE_FILE = {"log.retention.bytes": "123456789"}
FROM_STATIC = 4


def rows(caller: Caller, name: str, **options: Any) -> list[dict[str, Any]]:
    found = []
    for _, config in sorted(described(caller, name, **options).items()):
        row = {
            "name": config.name,
            "type": config.config_type,
            "read_only": config.read_only,
            "sensitive": config.is_sensitive,
        }
        if config.config_source != FROM_STATIC or config.value in OF_THE_FILE.values():
            row |= {
                "source": config.config_source,
                "value": config.value,
                "synonyms": synonyms(config),
            }
        found.append(row)
    return found


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaProcess(Path(folder) / "data", settings=OF_THE_FILE) as kafka,
        Caller(kafka.host, kafka.port, timeout_s=30) as caller,
    ):
        caller.create_topic("t", retention_ms="5000", cleanup_policy="compact,delete")
        answers = {"broker": rows(caller, "1"), "topic": rows(caller, "t", resource_type=TOPIC)}
    lines = [
        f'"{owner}": [\n' + ",\n".join(json.dumps(row) for row in found) + "\n]"
        for owner, found in answers.items()
    ]
    INTO.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
