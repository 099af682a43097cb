"""What is in ops/ for who watches a broker: alerts are explained, and Grafana knows the board."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.style.sources import text


def test_every_alert_has_its_row_on_the_page_and_no_other_has() -> None:
    groups = yaml.safe_load(text("ops/alerts.yml"))["groups"]
    alerts = [rule["alert"] for group in groups for rule in group["rules"]]
    rows = re.findall(r"^\| (Triglot[^|]*) \| (.+) \|$", text("docs/metrics.md"), re.MULTILINE)

    assert sorted(name for names, _ in rows for name in names.split(", ")) == sorted(alerts)


def test_every_field_of_the_board_is_one_that_grafana_has() -> None:
    """Its types drop what they do not know."""
    board = json.loads(text("ops/grafana-board.json"))
    register_default_plugins()

    known = json.loads(JSONEncoder().encode(Dashboard.from_json(board)))

    assert list(unlike(board, known, "board")) == []


def unlike(wanted: Any, found: Any, place: str) -> list[str]:
    """The places of what is wanted and not found; more may be found."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        missing = [f"{place}.{name}" for name in wanted if name not in found]
        both = wanted.keys() & found.keys()
        return missing + [
            one for name in both for one in unlike(wanted[name], found[name], f"{place}.{name}")
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [one for at, (a, b) in pairs for one in unlike(a, b, f"{place}[{at}]")]
    return [] if wanted == found else [place]
