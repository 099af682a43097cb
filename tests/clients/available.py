"""The clients, and those of them that can run on this machine."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.clients.drivers.program_driver import ProgramDriver, java_driver, kafkajs_driver
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _pytest.mark.structures import ParameterSet

    from tests.clients.drivers.driver import Driver

#: Of the clients written in Python: the module and the class of the driver.
PYTHON_DRIVERS = {
    "kafka-python": ("kafka_python_driver", "KafkaPythonDriver"),
    "confluent-kafka": ("confluent_driver", "ConfluentDriver"),
    "aiokafka": ("aiokafka_driver", "AiokafkaDriver"),
}

RUNTIMES = {
    "kafka-python": "python",
    "confluent-kafka": "python",
    "aiokafka": "python",
    "java-3.9": "java",
    "java-4": "java",
    "kafkajs": "node",
}

MARKS = {
    "python": (),
    "java": (pytest.mark.java,),
    "node": (pytest.mark.node,),
    "go": (pytest.mark.go,),
    "rust": (pytest.mark.rust,),
}


def every_client_but(*keys: str) -> list[ParameterSet]:
    """Values of a test's parameter `client`."""
    return [
        pytest.param(key, id=key, marks=MARKS[runtime])
        for key, runtime in RUNTIMES.items()
        if key not in keys
    ]


EVERY_CLIENT = every_client_but()


class Clients:
    """The drivers, each made when a test first asks for it."""

    def __init__(self, new_folder: Callable[[str], Path]) -> None:
        self._new_folder = new_folder
        self._made: dict[str, Driver | NotAvailable] = {}

    def get(self, key: str) -> Driver:
        """The driver, or the end of the test: skipped, or failed if the runtime is required."""
        try:
            return self.find(key)
        except NotAvailable as reason:
            end_of_test(RUNTIMES[key], f"{key}: {reason}")

    def find(self, key: str) -> Driver:
        """The driver. Raises `NotAvailable`."""
        if key not in self._made:
            try:
                self._made[key] = self._make(key)
            except NotAvailable as reason:
                self._made[key] = reason
        found = self._made[key]
        if isinstance(found, NotAvailable):
            raise found
        return found

    def close(self) -> None:
        for driver in self._made.values():
            if isinstance(driver, ProgramDriver):
                driver.program.close()

    def _make(self, key: str) -> Driver:
        if key in PYTHON_DRIVERS:
            module, name = PYTHON_DRIVERS[key]
            try:
                driver: Driver = getattr(import_module(f"tests.clients.drivers.{module}"), name)()
            except ImportError as error:
                raise NotAvailable(str(error)) from None
            return driver
        if RUNTIMES[key] == "java":
            return java_driver(key, self._new_folder(key))
        return kafkajs_driver(self._new_folder(key))


def end_of_test(runtime: str, reason: str) -> NoReturn:
    """Skip, or fail when this machine is said to have the runtime."""
    if runtime in os.environ.get("TEST_REQUIRE_CLIENTS", "").split(","):
        pytest.fail(reason)
    pytest.skip(reason)
