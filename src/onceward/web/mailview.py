"""An email to look at: pictures that are part of it are put into its html; nothing is fetched from elsewhere."""

from __future__ import annotations

import re
from urllib.parse import unquote

from onceward.model import Json

# Of types that a browser shows as a picture, and that run nothing.
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"})
_CID = re.compile(r"""(?<=["'(=])cid:([^\s"'<>()]+)""", re.IGNORECASE)


def with_pictures(html: str, attachments: Json) -> str:
    """`cid:code` becomes the picture itself, as a `data:` address; what is no picture of the mail stays as it is.

    Both parts are checked when a delivery is made: a type has letters, digits, dots, plus and minus, and the content is
    base64, so neither can end the attribute that it is put into.
    """
    parts = {
        part["content_id"]: f"data:{kind};base64,{part['content']}"
        for part in (attachments if isinstance(attachments, list) else ())
        if isinstance(part, dict) and part.get("content_id")
        and (kind := str(part.get("type") or "").lower()) in _PICTURES
    }  # fmt: skip
    return _CID.sub(lambda found: parts.get(unquote(found[1]), found[0]), html)
