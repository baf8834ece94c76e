"""What a form sends, within bounds."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request

from onceward.errors import InvalidArgument

MOST_BYTES = 1024 * 1024
MOST_FIELDS = 2000


class Form:
    """Fields of a form, each a text."""

    def __init__(self, fields: dict[str, list[str]]) -> None:
        self._fields = fields

    def text(self, name: str, default: str = "") -> str:
        """The last value of the field, without spaces around it."""
        return self._fields.get(name, [default])[-1].strip()

    def all(self, name: str) -> list[str]:
        return self._fields.get(name, [])

    def raw(self, name: str) -> str:
        return self._fields.get(name, [""])[-1]

    def checked(self, name: str) -> bool:
        return bool(self.text(name))


class TooLarge(InvalidArgument):
    """The form is larger than a form may be."""


async def read_form(request: Request) -> Form:
    """Read once per request; asking again gives the same.  Raises TooLarge."""
    known: Form | None = getattr(request.state, "form", None)
    if known is not None:
        return known
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise TooLarge(f"a form may have {MOST_BYTES // 1024} KiB")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and kind != "application/x-www-form-urlencoded":
        raise InvalidArgument(f"a form is sent as application/x-www-form-urlencoded, got {kind[:60]!r}")
    try:
        fields = parse_qs(
            body.decode("utf-8"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise InvalidArgument("the form cannot be read", detail=str(error)[:200]) from None
    # Browsers send line ends as CR LF.
    form = Form({name: [value.replace("\r\n", "\n") for value in values] for name, values in fields.items()})
    request.state.form = form
    return form
