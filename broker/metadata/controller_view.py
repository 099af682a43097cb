"""What a process can tell of the metadata, whether it leads their log or follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from broker.metadata.features import KRAFT_VERSION_FEATURE
from storage.metadata.image import METADATA_VERSION_FEATURE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.logdata.metadata import MetadataRecord
    from storage.metadata.image import MetadataImage
    from storage.steps import Steps


class ControllerView(ABC):
    """Belongs to the loop. `leader_id` is the id of the controller."""

    leader_id: int

    @property
    @abstractmethod
    def image(self) -> MetadataImage:
        """What holds here."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """That of the metadata log's leader."""

    @property
    @abstractmethod
    def committed_offset(self) -> int:
        """The offset of the metadata log below which all holds here."""

    @property
    @abstractmethod
    def kraft_version(self) -> int: ...

    @abstractmethod
    def append(self, *operations: Sequence[MetadataRecord]) -> Steps[None]:
        """Make changes, each operation whole or not at all; durable and in `image` at the end.

        Raises OSError, and then nothing has changed; ValueError for a record that the
        metadata.version of the log does not have.
        """

    @property
    def finalized_features(self) -> dict[str, int]:
        """The levels that hold, as far as there are any: of all features that the log names, those
        too that mean nothing to this node."""
        found = dict(self.image.features)
        if self.kraft_version:
            found[KRAFT_VERSION_FEATURE] = self.kraft_version
        return found

    @property
    def feature_levels(self) -> dict[str, int]:
        """The same, with the level of metadata.version where the log names none."""
        return {**self.finalized_features, METADATA_VERSION_FEATURE: self.image.metadata_version}
