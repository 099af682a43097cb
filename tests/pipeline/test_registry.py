"""What is asked of a schema registry, and what is said of one that does not answer as wanted."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from pipeline.errors import Refused, Unreachable, WrongUse
from pipeline.values.registry import Registry, properties
from tests.support.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUICK = {"retries.wait.ms": "1", "retries.max.wait.ms": "1", "timeout": "1"}


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as running:
        yield running


def test_a_schema_comes_with_what_it_refers_to_in_order(server: SchemaRegistry) -> None:
    server.register("base", '"int"')
    server.register(
        "middle", '{"b": 1}', references=[{"name": "base", "subject": "base", "version": 1}]
    )
    id_ = server.register(
        "top", '{"t": 1}', references=[{"name": "middle", "subject": "middle", "version": 1}]
    )
    found = Registry(server.url, QUICK).schema(id_)
    assert found is not None
    assert found.references == ('"int"', '{"b": 1}')
    assert (found.kind, found.text) == ("AVRO", '{"t": 1}')


def test_an_id_that_is_not_there_is_none(server: SchemaRegistry) -> None:
    assert Registry(server.url, QUICK).schema(77) is None


def test_a_registry_that_is_down_is_asked_a_few_times_and_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unreachable, match=rf"the registry {url} does not answer .* 4 times"):
            Registry(url, QUICK).check()


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        ((503, b'{"error_code": 50003, "message": "busy"}'), Unreachable, "busy, asked 4 times"),
        ((200, b"<html>a page</html>"), WrongUse, "is no schema registry"),
        ((404, b"<html>no such page</html>"), WrongUse, "is no schema registry"),
        ((404, b'{"status": 404, "title": "no such path"}'), WrongUse, "is no schema registry"),
        ((401, b'{"error_code": 401, "message": "who?"}'), Refused, "basic.auth.user.info"),
    ],
)
def test_an_answer_that_is_no_registrys_is_told_in_a_line(
    server: SchemaRegistry, answer: tuple[int, bytes], kind: type[Exception], told: str
) -> None:
    server.failing = answer
    with pytest.raises(kind, match=told) as failure:
        Registry(server.url, QUICK).check()
    assert "\n" not in str(failure.value)


def test_a_login_is_read_from_the_file_of_properties(tmp_path: Path) -> None:
    file = tmp_path / "registry.properties"
    file.write_text("# of the registry\nbasic.auth.user.info = me:secret\n")
    with SchemaRegistry(login="me:secret") as server:
        id_ = server.register("s", json.dumps("int"))
        assert Registry(server.url, {**QUICK, **properties(str(file))}).schema(id_) is not None
        with pytest.raises(Refused, match="Unauthorized"):
            Registry(server.url, QUICK).schema(id_)


def test_a_schema_that_is_too_large_is_refused(server: SchemaRegistry) -> None:
    id_ = server.register("s", "x" * (5 << 20))
    with pytest.raises(Refused, match="5,242,880 characters"):
        Registry(server.url, QUICK).schema(id_)


def test_schemas_that_refer_to_each_other_end(server: SchemaRegistry) -> None:
    refers = [{"name": "s", "subject": "s", "version": 1}]
    id_ = server.register("s", "x", references=refers)
    found = Registry(server.url, QUICK).schema(id_)
    assert found is not None
    assert len(found.references) == 1
