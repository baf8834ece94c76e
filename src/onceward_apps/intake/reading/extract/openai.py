"""Endpoints that speak OpenAI's chat completions: OpenAI, vLLM, llama.cpp, Ollama and others."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from onceward_apps.intake.reading.errors import Rejected, Unavailable
from onceward_apps.intake.reading.extract import Settings, asking
from onceward_apps.intake.reading.extract.language_model import LanguageModel
from onceward_apps.intake.reading.http import Endpoint
from onceward_apps.intake.reading.model import Document, Usage


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)


class _Answer(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage = _Usage()


class OpenAi(LanguageModel):
    __slots__ = ()
    name = "openai"

    @classmethod
    def keyed(cls, settings: Settings) -> OpenAi:
        if not settings.openai_key:
            raise Rejected("openai", "OPENAI_API_KEY is not set")
        endpoint = Endpoint(
            provider="openai",
            url=settings.openai_url,
            headers={"Authorization": f"Bearer {settings.openai_key}"},
            timeout=settings.timeout,
            transport=settings.transport,
        )
        return cls(endpoint, settings.openai_model, settings.max_output_tokens)

    async def _ask(self, document: Document, asked: str, wanted: type[BaseModel]) -> tuple[Any, Usage]:
        body = {
            "model": self.model,
            "messages": [{"role": "system", "content": asking.RULES}, {"role": "user", "content": asked}],
            "temperature": 0,
            "max_tokens": asking.answer_size(document, self.most),
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": wanted.__name__, "strict": True, "schema": asking.schema(wanted)},
            },
        }
        given = await self.endpoint.post("/chat/completions", body)
        try:
            answer = _Answer.model_validate(given)
        except ValidationError:
            raise Unavailable(self.name, "answered with something that is no completion") from None
        usage = Usage(answer.usage.prompt_tokens, answer.usage.completion_tokens)
        choice = answer.choices[0]
        if choice.finish_reason == "length":
            raise Rejected(self.name, "its answer is longer than allowed", tokens=usage.total)
        if choice.message.refusal or choice.finish_reason == "content_filter":
            raise Rejected(self.name, "declined to answer", tokens=usage.total)
        try:
            return json.loads(choice.message.content or ""), usage
        except (ValueError, RecursionError):
            raise self._useless(usage) from None
