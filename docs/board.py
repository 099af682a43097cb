"""The board for Grafana, `ops/grafana-board.json`: each panel is a line here."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

COLUMNS = 24
WIDTH, HEIGHT = 8, 8


class Panel(NamedTuple):
    """A graph over time. `queries` are expressions of Prometheus, each with the name of its lines;
    `unit` is one of Grafana's."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


ONLY = '{instance=~"$instance"}'


def _quantile(share: float, metric: str, by: str, only: str = ONLY) -> str:
    rate = f"sum by (le, {by}) (rate({metric}_bucket{only}[$__rate_interval]))"
    return f"histogram_quantile({share}, {rate})"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{ONLY}[$__rate_interval]))"


def _phase(phase: str) -> str:
    return f'{{instance=~"$instance",phase="{phase}"}}'


ROWS: dict[str, tuple[Panel, ...]] = {
    "Work": (
        Panel("Requests", "reqps", ((_rate("triglot_requests_total", "api"), "{{api}}"),)),
        Panel(
            "Bytes in and out",
            "Bps",
            (
                (_rate("triglot_topic_bytes_in_total", "instance"), "in"),
                (_rate("triglot_topic_bytes_out_total", "instance"), "out"),
            ),
        ),
        Panel(
            "Topics that grow fastest",
            "Bps",
            ((f"topk(10, {_rate('triglot_topic_bytes_in_total', 'topic')})", "{{topic}}"),),
        ),
        Panel(
            "Handling, 99 of 100 (local)",
            "s",
            ((_quantile(0.99, "triglot_request_seconds", "api", _phase("local")), "{{api}}"),),
        ),
        Panel(
            "Waiting for a turn, 99 of 100 (queue)",
            "s",
            ((_quantile(0.99, "triglot_request_seconds", "api", _phase("queue")), "{{api}}"),),
        ),
        Panel(
            "Waiting for the disk (acks=all)",
            "s",
            (
                (_quantile(0.5, "triglot_sync_seconds", "instance"), "a sync, 50 of 100"),
                (_quantile(0.99, "triglot_sync_seconds", "instance"), "a sync, 99 of 100"),
            ),
        ),
    ),
    "Groups": (
        Panel(
            "Groups furthest behind, in time",
            "s",
            ((f"topk(10, max by (group) (triglot_group_lag_seconds{ONLY}))", "{{group}}"),),
        ),
        Panel(
            "Groups furthest behind, in records",
            "short",
            ((f"topk(10, sum by (group) (triglot_group_lag_records{ONLY}))", "{{group}}"),),
        ),
        Panel(
            "Groups and rebalances",
            "short",
            (
                (f"sum by (type, state) (triglot_group_states{ONLY})", "{{type}} {{state}}"),
                (_rate("triglot_group_rebalances_total", "instance"), "rebalances/s"),
            ),
        ),
    ),
    "Clients": (
        Panel(
            "Connections",
            "short",
            (
                (f"sum(triglot_connections{ONLY})", "open"),
                (_rate("triglot_connection_creation_total", "instance"), "new/s"),
            ),
        ),
        Panel(
            "Client software",
            "short",
            (
                (
                    f"sum by (software_name, software_version) (triglot_client_connections{ONLY})",
                    "{{software_name}} {{software_version}}",
                ),
            ),
        ),
        Panel(
            "Refused and throttled",
            "reqps",
            (
                (_rate("triglot_produce_refusals_total", "error"), "{{error}}"),
                (_rate("triglot_throttled_total", "quota"), "{{quota}}"),
                (_rate("triglot_failed_authentication_total", "mechanism"), "login {{mechanism}}"),
            ),
        ),
        Panel(
            "Conversions for older readers",
            "short",
            ((_rate("triglot_converted_records_total", "instance"), "records/s"),),
        ),
    ),
    "Disk and process": (
        Panel(
            "Room",
            "bytes",
            (
                (f"triglot_disk_free_bytes{ONLY}", "free"),
                (f"sum(triglot_partition_log_bytes{ONLY})", "logs"),
            ),
        ),
        Panel(
            "Deleted and compacted",
            "Bps",
            (
                (_rate("triglot_deleted_bytes_total", "instance"), "deleted"),
                (_rate("triglot_cleaning_read_bytes_total", "instance"), "compaction, read"),
                (_rate("triglot_cleaning_written_bytes_total", "instance"), "compaction, written"),
            ),
        ),
        Panel(
            "Process",
            "short",
            (
                (_rate("triglot_process_cpu_seconds_total", "instance"), "cores in use"),
                (f"triglot_process_resident_memory_bytes{ONLY} / 2 ^ 20", "memory, MiB"),
            ),
        ),
    ),
}


def board() -> str:
    """The JSON that Grafana imports."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        panels.append({"type": "row", "title": title, "gridPos": place, "panels": []})
        y += 1
        for number, panel in enumerate(row):
            x, down = number * WIDTH % COLUMNS, number * WIDTH // COLUMNS
            place = {"h": HEIGHT, "w": WIDTH, "x": x, "y": y + down * HEIGHT}
            panels.append(_panel(panel, place))
        y += -(-len(row) * WIDTH // COLUMNS) * HEIGHT
    for number, one in enumerate(panels, start=1):
        one["id"] = number
    made = {
        "title": "triglot",
        "uid": "triglot",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_variable("datasource"), _instances()]},
        "panels": panels,
    }
    return json.dumps(made, indent=1) + "\n"


def _variable(name: str) -> dict[str, Any]:
    return {"name": name, "type": "datasource", "query": "prometheus", "label": "Source"}


def _instances() -> dict[str, Any]:
    return {
        "name": "instance",
        "label": "Broker",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": "label_values(triglot_info, instance)",
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": source, "expr": expr, "legendFormat": name}
            for at, (expr, name) in enumerate(panel.queries)
        ],
    }
