"""A schema registry that speaks Confluent's API: Confluent's own, Karapace, Apicurio.

Asked by the driver alone, once for an id in a run, with the client of confluent-kafka. What a file
of `--registry-config` may have in it are that client's properties (`basic.auth.user.info`,
`ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`, ...).
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.errors import NotInstalled, Refused, Unreachable, WrongUse

if TYPE_CHECKING:
    from collections.abc import Mapping

WANTED = "triglot[pipeline-values]"
TIMEOUT_S = 10
RETRIES = 3
LONGEST_WAIT_MS = 2000
"""Before another try. The client begins with a second or less, and doubles."""
MOST_REFERENCES = 100
"""Schemas that a schema refers to, and these to others."""
MOST_CHARACTERS = 4 << 20
"""Of a schema and all that it refers to. Spark's plans have them as text."""
NOT_FOUND = 404
ABSENT = frozenset({40401, 40402, 40403})
"""The registry's own codes for a subject, a version, or a schema that is not there. Any server says
404 of what it does not know, in JSON too."""


class RegisteredSchema(NamedTuple):
    """A schema, as it is registered."""

    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: tuple[str, ...] = ()
    """The texts of the schemas that it refers to, those first that others refer to."""
    names: tuple[str, ...] = ()
    """What each of them is called where it is referred to."""


def properties(path: str) -> dict[str, str]:
    """A file of KEY=VALUE lines. Raises WrongUse."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise WrongUse(f"the registry's properties cannot be read: {failure}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, separator, value = line.partition("=")
        if not separator:
            raise WrongUse(f"{path}, line {number}: wanted KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


class Registry:
    """Schemas by id."""

    def __init__(self, url: str, config: Mapping[str, str]) -> None:
        """Raises NotInstalled, and WrongUse for properties that the client does not take."""
        try:
            found = importlib.util.find_spec("confluent_kafka.schema_registry")
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise NotInstalled(f"a registry needs the package: pip install '{WANTED}'")
        from confluent_kafka.schema_registry import SchemaRegistryClient

        self._url = url
        settings: dict[str, Any] = {
            "timeout": TIMEOUT_S,
            "max.retries": RETRIES,
            "retries.max.wait.ms": LONGEST_WAIT_MS,
            **config,
        }
        for name in ("timeout", "max.retries", "retries.max.wait.ms", "retries.wait.ms"):
            if name in config:
                try:
                    settings[name] = int(config[name])
                except ValueError:
                    raise WrongUse(f"{name} = {config[name]!r} is no whole number") from None
        try:
            self._client = SchemaRegistryClient({**settings, "url": url})
        except (ValueError, TypeError, OSError) as failure:
            raise WrongUse(f"the registry {url} cannot be used: {failure}") from None
        except ImportError as failure:
            raise NotInstalled(
                f"a registry needs more packages ({failure}): pip install '{WANTED}'"
            ) from None

    def check(self) -> None:
        """Whether there is a registry. Raises Unreachable, Refused."""
        self._ask("settings", lambda: self._client.get_config())

    def schema(self, id_: int) -> RegisteredSchema | None:
        """The schema with an id; None if there is none. Raises Unreachable, Refused."""
        found = self._ask(f"schema {id_}", lambda: self._client.get_schema(id_))
        if found is None:
            return None
        referred = self._referred(found)
        references = tuple(referred.values())
        text = found.schema_str or ""
        size = len(text) + sum(map(len, references))
        if size > MOST_CHARACTERS:
            raise Refused(
                f"schema {id_} of {self._url} has {size:,} characters with what it refers to, and "
                f"at most {MOST_CHARACTERS:,} are taken"
            )
        return RegisteredSchema(found.schema_type or "AVRO", text, references, tuple(referred))

    def _referred(self, schema: Any) -> dict[str, str]:
        """Texts by their names."""
        found: dict[tuple[str, int], tuple[str, str]] = {}
        self._collect(schema, found)
        return dict(found.values())

    def _collect(self, schema: Any, found: dict[tuple[str, int], tuple[str, str]]) -> None:
        for reference in schema.references or ():
            place = (reference.subject, reference.version)
            if place in found:
                continue
            if len(found) >= MOST_REFERENCES:
                raise Refused(f"a schema of {self._url} refers to over {MOST_REFERENCES} others")
            found[place] = ("", "")
            version = self._ask(
                f"version {place[1]} of {place[0]}",
                lambda place=place: self._client.get_version(*place),
            )
            if version is None:
                raise Refused(f"{self._url} has no version {place[1]} of {place[0]}, referred to")
            self._collect(version.schema, found)
            del found[place]  # behind what it refers to itself
            found[place] = (reference.name, version.schema.schema_str or "")

    def _ask(self, what: str, request: Any) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return request()
        except SchemaRegistryError as failure:
            status = failure.http_status_code
            if failure.error_code in ABSENT:
                return None
            told = failure.error_message or f"HTTP {status}"
            if status in (401, 403):
                raise Refused(
                    f"the registry {self._url} refuses: {told}; give basic.auth.user.info in "
                    "--registry-config"
                ) from None
            if status == NOT_FOUND:
                raise WrongUse(
                    f"{self._url} is no schema registry with Confluent's API: {told[:200]}"
                ) from None
            raise Unreachable(
                f"the registry {self._url} does not give {what}: {told[:200]}, asked "
                f"{RETRIES + 1} times"
            ) from None
        except json.JSONDecodeError:
            raise WrongUse(
                f"{self._url} is no schema registry with Confluent's API: its answer is no JSON"
            ) from None
        except Exception as failure:
            # Whichever HTTP library the client has been built with raises its own.
            raise Unreachable(
                f"the registry {self._url} does not answer ({failure}), asked {RETRIES + 1} times"
            ) from None
