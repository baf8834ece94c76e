"""The text of an exception, whatever its class makes of it: recording a failure must not fail."""

from __future__ import annotations


def message_of(error: BaseException) -> str:
    try:
        # What libraries keep under this name need not be text.
        given = getattr(error, "message", None)
        return (isinstance(given, str) and given) or str(error) or type(error).__name__
    except Exception:
        return f"<{type(error).__name__} whose text cannot be read>"
