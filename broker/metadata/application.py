"""From the metadata log to the parts: what holds once records are committed.

A change is written, synced and replayed into the image; then the parts that keep something made of
it follow, and then whoever asked for the change is answered. They follow here and nowhere else, so
that it is the same whoever has asked.

    append -> on the disk -> image -> Application -> answer

Access rules, credentials and features are asked of the image each time, and need nothing. So are
delegation tokens; but who has come by one that ends has to go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.group_coordinator import GroupCoordinator
    from broker.metadata.client_metrics import ClientMetrics
    from broker.metadata.client_quotas import ClientQuotas
    from broker.metadata.dynamic_settings import DynamicSettings
    from broker.partitions.topics import Topics
    from broker.security.delegation_tokens import DelegationTokens
    from storage.metadata.delta import Delta
    from storage.metadata.image import MetadataImage
    from storage.steps import Steps


class Application:
    """Belongs to the loop."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        topics: Topics,
        groups: GroupCoordinator,
        *,
        client_metrics: Callable[[], ClientMetrics],
        delegation_tokens: Callable[[], DelegationTokens | None],
        dynamic_settings: DynamicSettings,
        quotas: ClientQuotas,
    ) -> None:
        """`image` is what has been replayed."""
        self._image = image
        self._topics = topics
        self._groups = groups
        self._client_metrics = client_metrics
        self._delegation_tokens = delegation_tokens
        self._dynamic_settings = dynamic_settings
        self._quotas = quotas

    def follow(self, delta: Delta) -> Steps[None]:
        """Have the parts follow. What the disk refuses is kept where it was asked for
        (`Topics.refused`): the change holds all the same."""
        for kind, name in delta.configs:
            if kind != TOPIC_RESOURCE:
                self._configure(kind, name)
        if delta.client_quotas:
            self._quotas.configure(self._image().client_quotas)
        tokens = self._delegation_tokens() if delta.delegation_tokens else None
        if tokens is not None:
            for token_id in delta.delegation_tokens:
                tokens.changed(token_id)
        if delta.topics:
            yield from self._topics.follow(delta.topics)
        for kind, name in delta.configs:
            if kind == TOPIC_RESOURCE:
                self._topics.take_settings(name)

    def _configure(self, kind: int, name: str) -> None:
        """Settings of something else than topics."""
        if kind == BROKER_RESOURCE:
            self._dynamic_settings.apply()
        elif kind == GROUP_RESOURCE:
            self._groups.configure(name, self._image().configs.get((kind, name), {}))
        elif kind == CLIENT_METRICS_RESOURCE:
            self._client_metrics().subscriptions_changed()
