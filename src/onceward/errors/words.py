"""How errors speak of values and types."""

from __future__ import annotations


def shown(value: object, most: int = 60) -> str:
    """A value as errors show it: enough to be recognised, never a page."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:  # RecursionError, or whatever a __repr__ does
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else text[:most] + "…"


def kinds_of(kinds: type | tuple[type, ...]) -> str:
    """Types as errors ask for them: `an int`, `a str or a timedelta`."""
    names = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
    return " or ".join(("an " if name[0] in "aeio" else "a ") + name for name in names)
