"""An archive with a folder for each topic, `lake/{topic}`: each one by itself, with one state.

A micro-batch is published topic by topic, each at its moment. What a crash cuts off is done again
for the topics that had not come to it: a task leaves those alone that had.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pipeline.archiving.publication import NOTE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pipeline.archiving.publication import Publication
    from pipeline.state import State

TOPIC = "{topic}"
"""What stands for the topic's name in the name of a folder or table."""


class TopicPublications:
    """The publications of all topics; one is opened when its topic first has something."""

    def __init__(self, state: State, opened: Callable[[str], Publication]) -> None:
        self._state = state
        self._opened = opened
        self._known: dict[str, Publication] = {}

    def finish(self) -> None:
        """As Publication has it, of all topics that have ever had something."""
        for name in self._state.names():
            if name.startswith(f"{NOTE}-"):
                noted = self._state.read(name)
                if noted is not None:
                    self._of(noted["topic"]).finish()

    def published(self) -> dict[str, int]:
        """The last micro-batch of each topic, as far as they have been opened."""
        return {topic: one.last for topic, one in self._known.items()}

    def shares(
        self, done: Sequence[Mapping[str, Any]]
    ) -> Iterable[tuple[Publication, Sequence[Mapping[str, Any]]]]:
        """Which part of a micro-batch's facts is published by whom. Raises as opening does."""
        by_topic: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for facts in done:
            by_topic[facts["topic"]].append(facts)
        return [(self._of(topic), some) for topic, some in sorted(by_topic.items())]

    def _of(self, topic: str) -> Publication:
        if topic not in self._known:
            self._known[topic] = self._opened(topic)
        return self._known[topic]
