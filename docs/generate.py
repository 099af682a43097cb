"""Writes the pages that are made from declarations: `python -m docs.generate`, or `make docs`.

docs/config.md comes from the declarations of the settings, docs/apis.md from the registry of APIs,
the table of handlers and the sentence at the head of each, docs/access.md from the table of what
each asks of the authorizer, docs/clients.md from what real clients
did when they were last tried, docs/releases.md from what was read of the releases of Kafka,
ops/grafana-board.json from the list of its panels.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.network.controller_handlers import CONTROLLER_HANDLERS
from broker.network.dispatch import served
from config.documentation import page as config_page
from docs.access_page import access_page
from docs.board import board
from docs.clients_page import clients_page
from docs.releases_page import releases_page
from protocol.registry import APIS

if TYPE_CHECKING:
    from protocol.connection import Served
    from protocol.registry import Api

CHECKOUT = Path(__file__).resolve().parents[1]

APIS_HEAD = """\
# The APIs that are answered

Every request that is answered, with its versions and what is done. `make docs` makes this page.
*Versions* are those that the broker offers in ApiVersions; a
request of another version gets the answer that Kafka gives it. Request and response of each are
declared in `protocol/messages`, and its handler, of the same name, stands in `broker/handlers`.

| key | API | versions | what it does here |
| ---: | --- | --- | --- |
"""

CONTROLLER_HEAD = """
## On the listeners of the controller

They (`controller.listener.names`) are for those who follow the metadata log, and for tools that are
told to ask the controller.

| key | API | versions | what it does there |
| ---: | --- | --- | --- |
"""

NOT_YET_HEAD = """
## Declared, not offered

Their messages are known in all versions, but a client is not offered them. An Envelope is what one
of several processes of a directory ([processes.md](processes.md)) passes on to the controller.

| key | API | versions declared |
| ---: | --- | --- |
"""

GUESSES = """
## What age tools take this broker for

Some tools guess a release of Kafka from ApiVersions, as kminion and others do with franz-go's
`kversion`. They go by the oldest release of which every API is there. franz-go 1.22 says "at least
v3.9" here: of Kafka 4.0 AddRaftVoter (80) and RemoveRaftVoter (81) are missing, of 4.1 those of
share groups (76 to 79, 83 to 87, 90 to 92), of 4.2 those of streams groups (88, 89). None of them
is offered before there is something behind it.

Versions tell more: Produce 13, Fetch 18 and ListOffsets 11 are those of Kafka 4.3. Clients go by
each API's versions, so that the guess keeps nothing from them.
"""


def apis_page() -> str:
    """docs/apis.md: a row for each API in the registry."""
    offered, of_the_controller = served(), served(CONTROLLER_HANDLERS)
    not_yet = [
        f"| {key} | {api.name} | {versions(api)} |\n"
        for key, api in sorted(APIS.items())
        if key not in offered and key not in of_the_controller
    ]
    return "".join(
        [
            APIS_HEAD,
            *rows(offered),
            CONTROLLER_HEAD,
            *rows(of_the_controller),
            NOT_YET_HEAD,
            *not_yet,
            GUESSES,
        ]
    )


def rows(table: dict[int, Served]) -> list[str]:
    """A row for each API that is answered, with what its handler says of itself."""
    return [
        f"| {key} | {here.api.name} | {versions(here)} | {first_sentence(here.handler)} |\n"
        for key, here in sorted(table.items())
    ]


def versions(ranged: Api | Served) -> str:
    """`3-13`, or `0` where there is but one."""
    if ranged.min_version == ranged.max_version:
        return str(ranged.min_version)
    return f"{ranged.min_version}-{ranged.max_version}"


def first_sentence(handler: Any) -> str:
    """What the head of a handler says first, without the API's name before it."""
    path = CHECKOUT / (handler.__module__.replace(".", "/") + ".py")
    head = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(head.partition("\n\n")[0].split())
    sentence = paragraph.partition(": ")[2]
    return sentence[:1].upper() + sentence[1:]


def pages() -> dict[str, str]:
    """Path below the checkout, and what that page says."""
    return {
        "docs/access.md": access_page(),
        "docs/apis.md": apis_page(),
        "docs/clients.md": clients_page(),
        "docs/config.md": config_page(),
        "docs/releases.md": releases_page(),
        "ops/grafana-board.json": board(),
    }


def main() -> None:
    for path, page in pages().items():
        (CHECKOUT / path).write_text(page, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
