"""Topics whose stored settings cannot be read as they are: all topics are served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from protocol.errors import ErrorCode
from storage.steps import run_here
from tests.broker.producing.test_failing_disk import ACKS_LEADER, answers, fetch, produce
from tests.support.fake_connection import InProcessBroker

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

GARBAGE = {"retention.ms": "soon", "segment.bytes": "", "of.kafka.9": "x"}


def test_one_unreadable_setting_of_one_topic_keeps_no_topic_from_being_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with InProcessBroker(tmp_path / "data") as broker:
        topics = broker.running.broker.topics
        for name in ("good", "bad"):
            run_here(topics.create(name, 1, {}))
        broker.connect().feed(produce(ACKS_LEADER, "good", "bad"))
        # Past the checks, as another broker may have.
        broker.running.broker.controller.store.set_configs("bad", GARBAGE)

    told: list[tuple[str, str]] = []
    monkeypatch.setattr(logs, "warning", lambda _, *, topic, reason: told.append((topic, reason)))
    with InProcessBroker(tmp_path / "data") as broker:
        fetched = fetch(broker, "good", "bad")
        client = broker.connect()
        client.feed(produce(ACKS_LEADER, "bad"))
        broker.turn()

        assert [code for code, _ in fetched.values()] == [ErrorCode.NONE] * 2
        assert answers(client, 9) == [{"bad": (ErrorCode.NONE, 1)}]
        bad = broker.running.broker.topics.by_name["bad"]
        assert bad.settings.retention_ms == -1, "nothing is deleted"
        assert {topic for topic, _ in told} == {"bad"}
        assert [any(name in reason for _, reason in told) for name in GARBAGE] == [True] * 3


def test_an_empty_cleanup_policy_is_taken_and_keeps_everything(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data") as broker:
        run_here(broker.running.broker.topics.create("kept", 1, {"cleanup.policy": ""}))

    with InProcessBroker(tmp_path / "data") as broker:
        kept = broker.running.broker.topics.by_name["kept"]
        assert kept.overrides == {"cleanup.policy": ""}
        assert kept.settings.cleanup_policy == ()
