"""A controller with nothing but its level, and an empty file system."""

from __future__ import annotations

import pytest

from protocol.logdata.metadata import FeatureLevelRecord
from tests.support.memory_filesystem import MemoryFilesystem
from tests.tools.observer.scripted_controller import ScriptedController

LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=21)


@pytest.fixture
def controller() -> ScriptedController:
    made = ScriptedController()
    made.lead(1)
    made.append(LEVEL)
    return made


@pytest.fixture
def files() -> MemoryFilesystem:
    return MemoryFilesystem()
