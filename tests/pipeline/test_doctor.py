"""The checks of a machine for pipelines, each told in one line by trying it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's extra is not installed")
pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")

from pipeline import cli
from pipeline.console import doctor
from pipeline.console.doctor import Finding, Wanted
from pipeline.errors import NoJava
from pipeline.session import Where
from pipeline.spark import java
from protocol.records import compression
from tests.support.broker_process import BrokerProcess

Capture = pytest.CaptureFixture[str]
JDK = "pipeline.spark.java.find"


def fake_java(environ: object) -> java.Java:
    return java.Java(Path("/jdk/bin/java"), "17.0.15", "JAVA_HOME")


@pytest.fixture(autouse=True)
def any_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find", fake_java)


def test_all_that_a_pipeline_needs_is_tried_and_told(
    capsys: Capture, broker: BrokerProcess
) -> None:
    assert cli.main(["doctor", "--from", broker.bootstrap]) == 0
    lines = {line[6:21].strip(): line for line in capsys.readouterr().out.splitlines()}
    assert list(lines) == [
        *("Python", "Java", "pyspark", "pyarrow", "numpy"),
        *("codec gzip", "codec snappy", "codec lz4", "codec zstd"),
        *("record loops", "broker"),
    ]
    assert all(line.startswith("ok    ") for line in lines.values())
    assert "17.0.15 at /jdk/bin/java (by JAVA_HOME)" in lines["Java"]
    assert f"{broker.bootstrap} answers, cluster " in lines["broker"]
    assert "Produce v0-v" in lines["broker"]


def test_the_exit_code_is_that_of_the_first_thing_that_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def none(environ: object) -> java.Java:
        raise NoJava("Spark needs Java")

    monkeypatch.setattr(java, "find", none)
    assert cli.main(["doctor", "--from", "127.0.0.1:1"]) == 9
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL")]
    assert failed[0] == "FAIL  Java            Spark needs Java"
    assert "127.0.0.1:1" in failed[1]
    assert len(failed) == 2


def test_json_has_the_same_findings(capsys: Capture) -> None:
    assert cli.main(["doctor", "--json", "--from", "127.0.0.1:1"]) == 3
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert findings[0]["name"] == "Python"
    assert [finding["exit"] for finding in findings[:-1]] == [0] * (len(findings) - 1)
    assert (findings[-1]["name"], findings[-1]["exit"]) == ("broker", 3)


def test_a_codec_whose_package_is_missing_is_exit_code_8(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_lz4(codec: int, *rest: object, **named: object) -> bytes:
        if codec == compression.LZ4:
            raise ModuleNotFoundError("No module named 'lz4'")
        return compress(codec, *rest, **named)  # type: ignore[arg-type]

    compress = compression.compress
    monkeypatch.setattr(compression, "compress", no_lz4)
    failed = [finding for finding in doctor.examine(Where(), Wanted()) if finding.exit]
    assert failed == [Finding("codec lz4", "No module named 'lz4': pip install triglot", 8)]


def test_a_codec_that_gives_back_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "decompress", lambda *given, **named: b"else")
    failed = [finding for finding in doctor.examine(Where(), Wanted()) if finding.exit]
    assert [finding.name for finding in failed] == [
        *("codec gzip", "codec snappy", "codec lz4", "codec zstd")
    ]


def test_a_package_that_is_too_old_is_exit_code_10(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.console.preflight.PACKAGES", (("numpy", (99, 1)),))
    failed = [finding for finding in doctor.examine(Where(), Wanted()) if finding.exit]
    assert failed[0].exit == 10
    assert "is too old, 99.1 or newer is wanted" in failed[0].found
