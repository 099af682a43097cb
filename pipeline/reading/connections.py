"""The connections of a task, which the ranges that it works on share."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


class Closable(Protocol):
    """A client that holds connections."""

    def close(self) -> None: ...


Client = TypeVar("Client", bound=Closable)


class Connections:
    """A context manager: what was made in it is closed at its end."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self._closing = ExitStack()

    def get(self, name: str, make: Callable[[], Client]) -> Client:
        """The client of this name, which is made when it is first asked for."""
        if name not in self._made:
            self._made[name] = self._closing.enter_context(closing(make()))
        client: Client = self._made[name]
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._made.clear()
        self._closing.close()
