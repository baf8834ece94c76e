"""Whether anything is left to do, for `drain()`."""

from __future__ import annotations


class Idleness:
    """The lanes are empty when nothing was found to promote, then nothing to claim, and nothing happened in between."""

    def __init__(self) -> None:
        # Whether somebody waits for the lanes to be empty.
        self.awaited = False
        self.looked = False
        self.found_nothing = False
        self.changes = 0

    def changed(self) -> None:
        self.changes += 1
        self.looked = self.found_nothing = False

    def promoted_nothing(self, *, since: int) -> None:
        """A pass of maintenance was quiet; `since`: the changes when it began."""
        self.looked = since == self.changes

    def claimed_nothing(self, *, swept: bool) -> None:
        """A claim has brought nothing; `swept`: it looked at all that there is."""
        self.found_nothing = self.looked and swept
