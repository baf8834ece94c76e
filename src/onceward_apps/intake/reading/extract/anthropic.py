"""Anthropic's messages.  The answer is the input of a tool that exists only to give it a schema."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, Field, ValidationError

from onceward_apps.intake.reading.errors import Rejected, Unavailable
from onceward_apps.intake.reading.extract import Settings, asking
from onceward_apps.intake.reading.extract.language_model import LanguageModel
from onceward_apps.intake.reading.http import Endpoint
from onceward_apps.intake.reading.model import Document, Usage

_VERSION: Final = "2023-06-01"
_TOOL: Final = "report"


class _Block(BaseModel):
    type: str
    name: str | None = None
    input: Any = None


class _Usage(BaseModel):
    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)


class _Answer(BaseModel):
    content: list[_Block]
    stop_reason: str | None = None
    usage: _Usage = _Usage()


class Anthropic(LanguageModel):
    __slots__ = ()
    name = "anthropic"

    @classmethod
    def keyed(cls, settings: Settings) -> Anthropic:
        if not settings.anthropic_key:
            raise Rejected("anthropic", "ANTHROPIC_API_KEY is not set")
        endpoint = Endpoint(
            provider="anthropic",
            url=settings.anthropic_url,
            headers={"x-api-key": settings.anthropic_key, "anthropic-version": _VERSION},
            timeout=settings.timeout,
            transport=settings.transport,
        )
        return cls(endpoint, settings.anthropic_model, settings.max_output_tokens)

    async def _ask(self, document: Document, asked: str, wanted: type[BaseModel]) -> tuple[Any, Usage]:
        body = {
            "model": self.model,
            "max_tokens": asking.answer_size(document, self.most),
            "temperature": 0,
            "system": asking.RULES,
            "messages": [{"role": "user", "content": asked}],
            "tools": [
                {"name": _TOOL, "description": "Takes the answer.", "input_schema": asking.schema(wanted)}
            ],
            "tool_choice": {"type": "tool", "name": _TOOL},
        }
        given = await self.endpoint.post("/v1/messages", body)
        try:
            answer = _Answer.model_validate(given)
        except ValidationError:
            raise Unavailable(self.name, "answered with something that is no message") from None
        usage = Usage(answer.usage.input_tokens, answer.usage.output_tokens)
        if answer.stop_reason == "max_tokens":
            raise Rejected(self.name, "its answer is longer than allowed", tokens=usage.total)
        if answer.stop_reason == "refusal":
            raise Rejected(self.name, "declined to answer", tokens=usage.total)
        for block in answer.content:
            if block.type == "tool_use" and block.name == _TOOL:
                return block.input, usage
        raise self._useless(usage)
