"""`triglot completion`: what makes a shell complete the words of the command line, and the answers
when it asks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tools.arguments import run_alone

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

SHELLS = ("bash", "zsh", "fish")

COMPLETION_HELP = """\
Print what a shell needs to complete commands, options, their values, and names of topics, which the
broker of --bootstrap is asked for.

  bash:  triglot completion bash > ~/.local/share/bash-completion/completions/triglot
  zsh:   triglot completion zsh > ~/.zfunc/_triglot      (with fpath+=~/.zfunc before compinit)
  fish:  triglot completion fish > ~/.config/fish/completions/triglot.fish

Or for this shell only: eval "$(triglot completion bash)"
"""


def add_commands(commands: Commands) -> None:
    """Add `completion` to the command line's."""
    completion = commands.add_parser(
        "completion",
        help="print the completion of bash, zsh or fish",
        description=COMPLETION_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    completion.add_argument("shell", choices=SHELLS)
    completion.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    return run_alone(lambda: print(shellcode(["triglot"], shell=arguments.shell)))


def answer(parser: argparse.ArgumentParser) -> None:
    """Tell the shell what may come next, and end the process."""
    import argcomplete

    argcomplete.autocomplete(parser)
