"""The renderer behind HTTP: what is tried again, what is not, and what never reaches a log."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import httpx
import pytest

from onceward_apps.proof import outside
from onceward_apps.proof.drawing import label_pdf
from onceward_apps.proof.settings import Settings
from tests.apps.proof.test_drawing import make_batch
from tests.deliveries.sinks import HttpSink

KEY = "renderer-key-of-a-test"


class Renderer(HttpSink):
    """Answers as told; keeps what it was asked."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)

    async def _answer(self, hit, writer):
        self.hits.append(hit)
        status, body, more = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status == 0:
            writer.transport.abort()
        elif status == 1:
            await asyncio.sleep(3600)
        else:
            self._write(writer, status, body, more)


def render(*answers):
    with Renderer(*answers) as sink:
        browser = outside.Browserless(sink.url, KEY)
        try:
            return asyncio.run(browser.label(make_batch())), sink.hits
        except Exception as error:
            assert KEY not in str(error) + repr(error.__cause__) + repr(browser)
            return error, sink.hits


def test_the_renderer_gets_the_page_and_its_size():
    pdf = label_pdf(make_batch())
    made, (hit,) = render((200, pdf, ""))
    assert made == pdf
    assert hit.path == f"/pdf?token={KEY}"
    assert (hit.json["options"]["width"], hit.json["options"]["height"]) == ("100mm", "150mm")
    for part in ("PROTOCOL RAW COMPLETE", "PR-260320-001", "20 March 2027", "<svg", "100mm 150mm"):
        assert part in hit.json["html"]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 0])
def test_what_can_pass_later_is_worth_another_try__trap_p8(status):
    error, _ = render((status, b"secret words of the server", ""))
    assert type(error) is outside.PdfGenerationFailed
    assert "secret" not in str(error)


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 413, 422])
def test_what_is_refused_is_not_repeated__trap_p8(status):
    error, _ = render((status, b"", "Location: http://127.0.0.1:1/\r\n"))
    assert type(error) is outside.PdfGenerationRefused


def test_a_server_that_hangs_is_given_up__trap_p8(monkeypatch):
    monkeypatch.setattr(outside, "PDF", outside.Policy(outside.PdfGenerationFailed, 0.2))
    error, _ = render((1, b"", ""))
    assert str(error) == "the renderer did not answer in time"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("Fri, 20 Mar 2026 12:00:30 GMT", 30),
        ("Fri, 20 Mar 2020 12:00:00 GMT", 0),
        ("soon", None),
        (None, None),
    ],
)
def test_both_forms_of_retry_after_are_read(header, seconds):
    assert outside.retry_after(header, now=datetime(2026, 3, 20, 12, tzinfo=UTC)) == seconds


def test_the_server_is_given_the_time_it_asks_for__trap_p8():
    error, _ = render((429, b"", "Retry-After: 7\r\n"))
    assert error.retry_after == 7


def test_an_answer_that_is_no_pdf_is_a_failure():
    error, _ = render((200, b"<html>welcome</html>", ""))
    assert type(error) is outside.PdfGenerationFailed


@pytest.mark.slow
def test_the_pipeline_works_with_the_other_renderer_as_well(proof):
    pdf = label_pdf(make_batch())
    with Renderer((503, b"", ""), (200, pdf, "")) as sink:
        app = proof.make_app(renderer=outside.Browserless(sink.url, KEY))
        proof.create()
        proof.drain(app)
        assert (proof.job().state, len(sink.hits)) == ("done", 2)
    assert proof.one("select tries from onceward.steps where name = 'label_generated'") == 2


def test_tries_and_timeouts_are_those_of_the_table():
    assert [(p.timeout, len(p.waits), tuple(p.waits)) for p in (outside.QR, outside.STORAGE, outside.PDF)] == [
        (5, 0, ()), (10, 2, (1, 3)), (15, 3, (1, 3, 9)),
    ]  # fmt: skip
    assert outside.EMAIL_WAITS == (1, 3, 9)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"ONCEWARD_EMAIL": "smtp://mail.example"}, "COPACKER_EMAIL is not set"),
        ({"COPACKER_EMAIL": "a@b.c", "PROOF_RENDERER": "chrome"}, "must be typst or browserless"),
        ({"COPACKER_EMAIL": "a@b.c", "PROOF_RENDERER": "browserless"}, "BROWSERLESS_API_KEY is not set"),
        ({"COPACKER_EMAIL": "a@b.c", "PROOF_STORAGE_URL": "s3://bucket"}, "PROOF_LINK_SECRETS is not set"),
        ({"COPACKER_EMAIL": "a@b.c", "PROOF_LINK_SECRETS": "short"}, "at least 32 characters"),
    ],
)
def test_settings_that_are_missing_or_wrong_are_named(environ, message, tmp_path):
    with pytest.raises(Exception, match=message):
        Settings.from_environ({"ONCEWARD_HOME": str(tmp_path), **environ})


def test_on_one_machine_little_has_to_be_set(tmp_path):
    environ = {"ONCEWARD_HOME": str(tmp_path), "COPACKER_EMAIL": "a@b.c"}
    first, second = Settings.from_environ(environ), Settings.from_environ(environ)
    assert first.storage.secrets == second.storage.secrets
    assert len(first.storage.secrets[0]) == 64
    assert (tmp_path / "proof-link-secret").stat().st_mode & 0o777 == 0o600
    assert first.storage.url == (tmp_path / "proof-assets").as_uri()


def test_a_transport_error_tells_its_kind_and_not_the_address():
    def broken(request):
        raise httpx.ConnectError(f"cannot reach {request.url}")

    browser = outside.Browserless("http://renderer.example", KEY, httpx.MockTransport(broken))
    with pytest.raises(outside.PdfGenerationFailed, match=r"cannot be reached \(ConnectError\)") as caught:
        asyncio.run(browser.label(make_batch()))
    assert KEY not in str(caught.value)
