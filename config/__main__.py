"""Prints the page about all keys, the sample file, the keys, or those no source reads.

python -m config docs | sample | keys | unread FOLDER...
"""

from __future__ import annotations

import sys

from config.documentation import page, sample
from config.keys import known_keys
from config.not_yet import NOT_YET, unread, why_not_yet
from config.topic import TopicSettings


def _keys() -> str:
    lines = []
    for owner, keys in (("broker", known_keys()), ("topic", TopicSettings.KEYS)):
        for name, key in sorted(keys.items()):
            default = key.format(key.default)
            shown = "null" if default is None else default
            effect = "none" if key.unused else "not yet" if why_not_yet(key) else "yes"
            lines.append(f"{owner}\t{name}\t{key.kind.name}\t{effect}\t{shown}\n")
    return "".join(lines)


def _unread(folders: list[str]) -> str:
    """Keys whose attribute no module of these folders mentions, and what not_yet.py says."""
    from pathlib import Path

    text = "\n".join(path.read_text() for one in folders for path in Path(one).rglob("*.py"))
    waiting = {name for names in NOT_YET.values() for name in names}
    found = unread(text)
    lines = [f"{name}\t{'not yet' if name in waiting else 'UNREAD'}\n" for name in found]
    lines += [f"{name}\tREAD, but in not_yet.py\n" for name in sorted(waiting - set(found))]
    return "".join(lines)


def main(arguments: list[str]) -> int:
    match arguments:
        case ["docs"]:
            text = page()
        case ["sample"]:
            text = sample()
        case ["keys"]:
            text = _keys()
        case ["unread", *folders] if folders:
            text = _unread(folders)
        case _:
            sys.stderr.write(f"python -m {__package__} docs | sample | keys | unread FOLDER...\n")
            return 2
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
