"""The parts of every API: a declaration, a handler that says what it does, a row in the docs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from broker.network.controller_handlers import CONTROLLER_HANDLERS
from broker.network.dispatch import HANDLERS
from protocol.registry import APIS
from tests.style.sources import CHECKOUT, text, tree

if TYPE_CHECKING:
    from protocol.registry import Api

SERVED = [
    pytest.param(APIS[key], handler.__module__, id=f"{APIS[key].name}-{handler.__name__}")
    for table in (HANDLERS, CONTROLLER_HANDLERS)
    for key, handler in sorted(table.items())
]
HANDLER_MODULES = {
    handler.__module__.rpartition(".")[2]
    for table in (HANDLERS, CONTROLLER_HANDLERS)
    for handler in table.values()
}
DECLARED = [pytest.param(APIS[key], id=APIS[key].name) for key in sorted(APIS)]


@pytest.mark.parametrize("api", DECLARED)
def test_every_api_has_a_declaration_that_agrees_with_the_registry(api: Api) -> None:
    head = ast.get_docstring(tree(f"protocol/messages/{api.module}.py")) or ""

    assert head.startswith(f"{api.name} ({api.key})")
    for message in (api.request, api.response):
        assert message.key == api.key
        # A version may be declared and not offered, as one that Kafka has not made stable.
        assert message.min_version <= api.min_version <= api.max_version <= message.max_version
        assert message.first_flexible == max(api.first_flexible, message.min_version)


@pytest.mark.parametrize(("api", "module"), SERVED)
def test_every_api_that_is_served_has_a_handler_that_says_what_it_does(
    api: Api, module: str
) -> None:
    head = ast.get_docstring(tree(f"{module.replace('.', '/')}.py")) or ""
    assert head.startswith(f"{api.name}: ")
    assert len(head.split()) >= 8


@pytest.mark.parametrize("api", DECLARED)
def test_every_api_has_a_row_in_the_docs(api: Api) -> None:
    assert f"| {api.key} | {api.name} |" in text("docs/apis.md")


def test_the_handler_of_an_api_for_clients_has_its_name() -> None:
    for key, handler in HANDLERS.items():
        assert handler.__module__ == f"broker.handlers.{APIS[key].module}"
        assert handler.__name__ == APIS[key].module


SHARED_BY_HANDLERS = {
    "access",
    "config_resources",
    "context",
    "delegation_tokens",
    "metadata_changes",
    "nodes",
    "quorum",
    "telemetry_client",
}


def test_no_declaration_and_no_handler_is_left_out_of_its_table() -> None:
    for folder, listed in (
        ("protocol/messages", {api.module for api in APIS.values()}),
        ("broker/handlers", HANDLER_MODULES | SHARED_BY_HANDLERS),
    ):
        files = {path.stem for path in (CHECKOUT / folder).glob("[a-z]*.py")}
        assert files == listed
