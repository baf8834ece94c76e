"""Seeds of what is drawn at random.

Each run on a developer's machine draws anew, and so looks where no run looked before.  In CI a commit is tried with the
same examples each time: what fails there fails again, and was not drawn by somebody else's change.
"""

from __future__ import annotations

import os
import random

REPEATED = bool(os.environ.get("CI"))


def seed() -> int:
    # Not the module's own generator: the plugin for random order seeds that one.
    return 20_260_320 if REPEATED else random.SystemRandom().randrange(2**32)
