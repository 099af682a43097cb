"""Reading the broker's settings from where they are given: file, environment, `--set`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.broker import BrokerSettings, Given, Layers, known_keys, read
from config.errors import ConfigError, Problem, nearest_of
from config.properties import (
    VARIABLE_PREFIX,
    keys_by_variable,
    made_by_an_orchestrator,
    parse_properties,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike


def load(
    *,
    properties_file: str | PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> BrokerSettings:
    """The settings a broker starts with: defaults < file < environment < overrides.

    `environ` is the process's environment; only variables named TRIGLOT_... are read from it.
    `overrides` are the `--set key=value` of a command line. ConfigError carries everything
    that is wrong, each with its source: file and line, variable, or "--set".
    """
    problems: list[Problem] = []
    given: dict[str, Given] = {}
    if properties_file is not None:
        try:
            given |= _from_file(properties_file)
        except ConfigError as error:
            problems += error.problems
    for variable, text in sorted((environ or {}).items()):
        if not variable.startswith(VARIABLE_PREFIX) or made_by_an_orchestrator(variable, text):
            continue
        name = _key_of(variable)
        if name is None:
            nearest = nearest_of(variable, keys_by_variable(known_keys()))
            problems.append(Problem(variable, "", None, "no key has this variable", nearest))
        else:
            given[name] = Given(text, variable)
    given |= {name: Given(text, "--set") for name, text in (overrides or {}).items()}
    try:
        settings = read(Layers(given, {}, {}))
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    return settings


def _from_file(properties_file: str | PathLike[str]) -> dict[str, Given]:
    from pathlib import Path  # slow to import, and only needed when there is a file

    path = Path(properties_file)
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        raise ConfigError([Problem(str(path), "", None, reason)]) from None
    entries = parse_properties(data, str(path))
    return {entry.name: Given(entry.text, f"{path}:{entry.line}") for entry in entries}


def _key_of(variable: str) -> str | None:
    """The key of a variable; those without effect are looked through last, being slow to load."""
    name = keys_by_variable(BrokerSettings.KEYS).get(variable)
    return name or keys_by_variable(known_keys()).get(variable)
