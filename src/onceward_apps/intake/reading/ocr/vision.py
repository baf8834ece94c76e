"""Google Cloud Vision, by its JSON: POST /v1/images:annotate."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, Field, ValidationError

from onceward_apps.intake.reading.errors import RateLimited, Rejected, Unavailable
from onceward_apps.intake.reading.http import Endpoint
from onceward_apps.intake.reading.model import PageImage, Word
from onceward_apps.intake.reading.ocr import Settings

# Of google.rpc.Code.
_EXHAUSTED: Final = 8
_LATER: Final = frozenset((1, 2, 4, 10, 13, 14))


class _Vertex(BaseModel):
    # Zero is left out of the answer.
    x: float = 0
    y: float = 0


class _Box(BaseModel):
    vertices: list[_Vertex] = Field(min_length=1)


class _Symbol(BaseModel):
    text: str = ""


class _Word(BaseModel):
    symbols: list[_Symbol] = []
    boundingBox: _Box  # noqa: N815  # as Google spells it
    confidence: float = 0.9


class _Paragraph(BaseModel):
    words: list[_Word] = []


class _Block(BaseModel):
    paragraphs: list[_Paragraph] = []


class _Page(BaseModel):
    blocks: list[_Block] = []


class _Text(BaseModel):
    pages: list[_Page] = []


class _Error(BaseModel):
    code: int = 2


class _Response(BaseModel):
    error: _Error | None = None
    fullTextAnnotation: _Text = _Text()  # noqa: N815  # as Google spells it


class _Answer(BaseModel):
    responses: list[_Response] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Vision:
    """One request per page."""

    endpoint: Endpoint
    name: str = "google-vision"

    @classmethod
    def keyed(cls, settings: Settings) -> Vision:
        if not settings.google_vision_key:
            raise Rejected("google-vision", "GOOGLE_CLOUD_API_KEY is not set")
        # In a header, because addresses end up in logs.
        headers = {"X-Goog-Api-Key": settings.google_vision_key}
        return cls(
            Endpoint(
                provider="google-vision",
                url=settings.google_vision_url,
                headers=headers,
                timeout=settings.timeout,
                transport=settings.transport,
            )
        )

    async def read(self, image: PageImage) -> list[Word]:
        asked: dict[str, Any] = {
            "image": {"content": base64.b64encode(image.png).decode()},
            "features": [{"type": "DOCUMENT_TEXT_DETECTION"}],
            "imageContext": {"languageHints": ["en", "de"]},
        }
        given = await self.endpoint.post("/v1/images:annotate", {"requests": [asked]})
        try:
            answer = _Answer.model_validate(given).responses[0]
        except ValidationError:
            raise Unavailable(self.name, "answered with something that is no annotation") from None
        if answer.error is not None:
            code = answer.error.code
            if code == _EXHAUSTED:
                raise RateLimited(self.name, f"answered with code {code}")
            if code in _LATER:
                raise Unavailable(self.name, f"answered with code {code}")
            raise Rejected(self.name, f"refused the page with code {code}")
        return list(_words(answer.fullTextAnnotation))


def _words(text: _Text) -> Iterator[Word]:
    for page in text.pages:
        for block in page.blocks:
            for paragraph in block.paragraphs:
                for word in paragraph.words:
                    written = "".join(symbol.text for symbol in word.symbols).strip()
                    if written:
                        yield _placed(written, word)


def _placed(text: str, word: _Word) -> Word:
    xs = [max(0, round(corner.x)) for corner in word.boundingBox.vertices]
    ys = [max(0, round(corner.y)) for corner in word.boundingBox.vertices]
    confidence = round(min(max(word.confidence, 0.0), 1.0), 4)
    return Word(text, min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys), confidence)
