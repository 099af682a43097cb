"""Reading the broker's settings from where they are given, and checking them as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.broker import BrokerSettings, Given, Layers
from config.broker_rules import broken_rules
from config.errors import ConfigError, Problem, nearest_of
from config.keys import known_key, known_keys, problems_of
from config.platforms import PORTABLE_VARIABLE, wants_portable
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
    overrides_from: str = "--set",
) -> BrokerSettings:
    """The settings a broker starts with: defaults < file < environment < overrides.

    `environ` is the process's environment; only variables named TRIGLOT_... are read from it.
    `overrides` are the `--set key=value` of a command line, or `overrides_from` elsewhere.
    ConfigError carries everything that is wrong, each with its source: file and line, variable, or
    that.
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
        if variable == PORTABLE_VARIABLE:
            if wants_portable(environ or {}) is None:
                problems.append(Problem(variable, "", None, f"{text!r} is neither 1 nor 0"))
            continue
        name = _key_of(variable)
        if name is None:
            nearest = nearest_of(variable, keys_by_variable(known_keys()))
            problems.append(Problem(variable, "", None, "no key has this variable", nearest))
        else:
            given[name] = Given(text, variable)
    given |= {name: Given(text, overrides_from) for name, text in (overrides or {}).items()}
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


def read(layers: Layers) -> BrokerSettings:
    """Settings from layers that may be wrong. ConfigError carries every problem."""
    problems = [problem for layer in layers for problem in problems_of(layer.items())]
    if problems:
        raise ConfigError(problems)
    settings = BrokerSettings(_with_node_id(layers))
    for name, reason in broken_rules(settings, frozenset().union(*layers)):
        given = next((layer[name] for layer in reversed(layers) if name in layer), None)
        if given is None:
            problems.append(Problem("default", name, None, reason))
        elif key := known_key(name):
            problems.append(key.problem(given.source, given.text, reason))
    if problems:
        raise ConfigError(problems)
    return settings


def _with_node_id(layers: Layers) -> Layers:
    """node.id and broker.id are one number: whichever was given holds for both."""
    static = layers.static
    old, new = static.get("broker.id"), static.get("node.id")
    if old is None and new is None:
        return layers
    if new is None:
        assert old is not None
        if old.text.strip() == "-1":
            return layers._replace(
                static={name: one for name, one in static.items() if name != "broker.id"}
            )
        return layers._replace(static={**static, "node.id": old})
    if old is not None and old.text.strip() not in ("-1", new.text.strip()):
        raise ConfigError(
            [Problem(old.source, "broker.id", old.text, f"node.id is {new.text}; they must agree")]
        )
    return layers._replace(static={**static, "broker.id": new})
