"""What a wheel installs as its one top-level name, `triglot`.

The checkout has flat packages (`broker`, `storage`, ...). Installed like that they would take
such common names as `config` away from everybody's own code, so a wheel keeps them in the
private folder `triglot/_flat`, and this file, installed as `triglot/__init__.py` and as
`triglot/__main__.py`, puts that folder first on the path and calls the command line. First,
because with `python -m` or PYTHONPATH the user's folder with its own `config/` comes early.
"""

import sys


def main() -> int:
    """Run the command line of the installed broker and return its exit status."""
    flat = __file__.rpartition("/")[0] + "/_flat"
    if flat not in sys.path:
        sys.path.insert(0, flat)
    from broker.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
