"""The actions of `triglot configs`, from parsed arguments to printed lines."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from tools.configs.settings import Resource, alter_settings, settings_of
from tools.errors import NotDone
from tools.printing import counted, print_json, print_lines, table

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Sequence

    from tools.cluster import Cluster
    from tools.configs.settings import Setting

SECRET = "..."


def run_describe(cluster: Cluster, arguments: Arguments) -> None:
    """The settings of a resource, or some of them."""
    resource = Resource(arguments.kind, arguments.name)
    found = settings_of(cluster, resource)
    if arguments.key:
        found = _named(found, arguments.key, resource)
    elif not arguments.all:
        found = [one for one in found if one.is_own]
    if arguments.json:
        print_json({**resource._asdict(), "settings": setting_json(found)})
    elif found:
        print_lines(setting_rows(found))
    else:
        print_lines([f"nothing is set for {resource}; --all shows what holds for it"])


def run_alter(cluster: Cluster, arguments: Arguments) -> None:
    """Changes of a resource's settings."""
    resource = Resource(arguments.kind, arguments.name)
    new = dict(arguments.set)
    alter_settings(cluster, resource, new, arguments.unset)
    if arguments.json:
        print_json({**resource._asdict(), "set": new, "unset": arguments.unset})
    else:
        what = counted(len(new) + len(arguments.unset), "setting")
        print_lines([f"{what} of {resource} changed"])


def setting_rows(settings: Sequence[Setting]) -> list[str]:
    """A table of settings."""
    rows = [(one.name, SECRET if one.value is None else one.value, one.source) for one in settings]
    return table(("SETTING", "VALUE", "SOURCE"), rows)


def setting_json(settings: Sequence[Setting]) -> list[dict[str, object]]:
    """The same for machines; the value of a secret is null."""
    return [one._asdict() for one in settings]


def _named(found: list[Setting], names: Sequence[str], resource: Resource) -> list[Setting]:
    known = {one.name: one for one in found}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            more = f": did you mean '{near[0]}'?" if near else ""
            raise NotDone(f"{resource} has no setting '{name}'{more}")
    return [known[name] for name in names]
