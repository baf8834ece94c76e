"""Forms, and forms with files: from people who have signed in, within bounds, byte for byte."""

from __future__ import annotations

import hashlib

import pytest
from starlette.responses import JSONResponse
from starlette.routing import Route

from onceward.web import Section
from onceward.web.forms import MOST_UPLOAD, read_form

# Everything that a parser of lines could trip over.
BYTES = bytes(range(256)) * 300 + b"\r\n--\r\n\n\r"


async def take(request):
    form = await read_form(request)
    return JSONResponse(
        {
            "note": form.text("note"),
            "files": {
                name: [file.filename, len(file.content), hashlib.sha256(file.content).hexdigest()]
                for name, file in form.files.items()
            },
        }
    )


@pytest.fixture
def ana(serve):
    return serve(sections=[Section("box", "Box", pages=[Route("/put", take, methods=["POST"])])]).signed_in()


def test_a_file_arrives_as_it_was_sent(ana):
    answer = ana.http.post(
        "/box/put", data={"csrf": ana.csrf, "note": "hé"}, files={"a": ("ä b.pdf", BYTES), "left": ("", b"")}
    )
    assert answer.json() == {
        "note": "hé",
        "files": {"a": ["ä b.pdf", len(BYTES), hashlib.sha256(BYTES).hexdigest()]},
    }


def test_a_file_needs_the_token_of_the_form(ana):
    assert ana.http.post("/box/put", data={"note": "x"}, files={"a": ("a", b"x")}).status_code == 403


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"files": {"a": ("a", b"0" * (MOST_UPLOAD + 1))}}, 413),
        ({"files": {f"f{n}": ("a", b"x") for n in range(30)}}, 400),
        (
            {"content": b"--x\r\nnonsense", "headers": {"content-type": "multipart/form-data; boundary=x"}},
            403,
        ),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400),
    ],
)
def test_a_form_without_bounds_or_sense_is_refused(ana, given, status):
    assert ana.http.post("/box/put", **given).status_code == status


@pytest.mark.parametrize("files", [None, {"a": ("a", b"x")}])
def test_a_nul_is_refused_by_the_name_of_its_field(ana, files):
    answer = ana.http.post("/box/put", data={"csrf": ana.csrf, "note": "x\0y"}, files=files)

    assert answer.status_code == 400
    assert "Note must not contain NUL characters." in answer.text
    # Other control characters are somebody's text.
    kept = ana.http.post("/box/put", data={"csrf": ana.csrf, "note": "x\ty\x01z"}, files=files)
    assert kept.json()["note"] == "x\ty\x01z"


def test_strangers_send_no_files(serve):
    site = serve()
    site.link()
    stranger = site.visitor().http
    answer = stranger.post("/sign-in", data={"link": "x"}, files={"a": ("a", b"x" * 1000)})
    assert answer.status_code == 400
