"""Where the program `onceward` begins."""

from __future__ import annotations

import gc


def main() -> None:
    """Import the commands, and run one.

    Nothing that is imported is ever garbage, and to look for some meanwhile took a fifth of the processor time of a command.
    """
    gc.disable()
    from onceward.cli.main import main as run

    gc.freeze()
    gc.enable()
    run()
