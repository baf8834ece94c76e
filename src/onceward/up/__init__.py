"""`onceward up`: database, worker and pages, all from one command, until Ctrl-C."""

from onceward.up.up import UpSettings, run

__all__ = ["UpSettings", "run"]
