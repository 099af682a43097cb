"""The controller as a process knows it that follows its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.controller_view import ControllerView
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.metadata.follower import MetadataFollower
    from protocol.logdata.metadata import MetadataRecord
    from storage.metadata.image import MetadataImage
    from storage.steps import Steps


class FollowedController(ControllerView):
    """Belongs to the loop."""

    def __init__(self, follower: MetadataFollower, leader_id: int) -> None:
        self._follower = follower
        self.leader_id = leader_id

    @property
    def image(self) -> MetadataImage:
        return self._follower.image

    @property
    def epoch(self) -> int:
        return self._follower.epoch

    @property
    def committed_offset(self) -> int:
        return self._follower.end_offset

    @property
    def kraft_version(self) -> int:
        return self._follower.kraft_version

    def append(self, *operations: Sequence[MetadataRecord]) -> Steps[None]:
        """Changes are made by the controller. Raises KafkaError, NOT_CONTROLLER."""
        raise KafkaError(
            f"broker {self.leader_id} is the controller", code=ErrorCode.NOT_CONTROLLER
        )
