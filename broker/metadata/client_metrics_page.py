"""The metrics that clients have pushed (KIP-714), as text that Prometheus and people can read.

    org_apache_kafka_producer_record_send_total{client_id="till",client_instance_id="..."} 7

It is served at `/client-metrics` on `metrics.port`. Names and attributes are the clients' own, with
an underscore for each character that Prometheus does not allow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker.metadata.client_metrics import EXPANDED_BYTES_MAX
from protocol.errors import KafkaError, Malformed
from protocol.otlp import samples
from protocol.records.compression import decompress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.metadata.client_metrics import Push

SAMPLES_MAX = 200_000
"""Lines of the page; a last one says so where there would be more."""

_OTHERS = re.compile(r"[^a-zA-Z0-9_]")
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def page(pushes: Iterable[Push]) -> str:
    """All numbers in the text format of Prometheus, by name. What cannot be read is named."""
    families: dict[str, list[str]] = {}
    monotonic: dict[str, bool] = {}
    notes: list[str] = []
    count = 0
    for push in pushes:
        facts = push.facts
        who = (
            ("client_instance_id", facts.client_instance_id),
            ("client_id", facts.client_id),
            ("client_software_name", facts.client_software_name),
            ("client_software_version", facts.client_software_version),
        )
        try:
            payload = decompress(push.codec, push.payload, limit=EXPANDED_BYTES_MAX)
            for sample in samples(payload):
                if count == SAMPLES_MAX:
                    break
                count += 1
                name = _name(sample.name)
                monotonic[name] = sample.monotonic
                labels = _labels((*who, *sample.attributes))
                families.setdefault(name, []).append(f"{name}{{{labels}}} {_number(sample.value)}")
        except (Malformed, KafkaError) as error:
            notes.append(f"# {facts.client_instance_id} sent what is no metrics: {error}")
    if count == SAMPLES_MAX:
        notes.append(f"# more than {SAMPLES_MAX} numbers; the others are left out")
    lines = []
    for name, rows in sorted(families.items()):
        lines.append(f"# TYPE {name} {'counter' if monotonic[name] else 'gauge'}")
        lines += rows
    return "".join(f"{line}\n" for line in (*lines, *notes))


def _name(text: str) -> str:
    name = _OTHERS.sub("_", text)
    return name if name and not name[0].isdigit() else f"_{name}"


def _labels(attributes: Iterable[tuple[str, str]]) -> str:
    # Of two with one name the first holds: a client cannot pass for another.
    named: dict[str, str] = {}
    for key, value in attributes:
        named.setdefault(_name(key), value)
    return ",".join(f'{key}="{value.translate(_ESCAPED)}"' for key, value in named.items())


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(value)
