"""Words from page images, by each of the providers."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import threading
from datetime import timedelta

import pytest
from PIL import Image, ImageDraw, ImageFont

from onceward_apps.intake.reading import ocr, spatial
from onceward_apps.intake.reading.errors import RateLimited, Rejected, Unavailable
from onceward_apps.intake.reading.model import PageImage
from onceward_apps.kit.typeset import manrope
from tests.apps.intake.reading.typed import Double

LINES = ("Laborbefund für Käthe Weiß", "Hämoglobin 14,2 g/dl 13,5 - 17,5", "Metformin 500 mg 1-0-1")
KEY = "vision-key-of-a-test"


def page(turns: int = 0) -> PageImage:
    picture = Image.new("RGB", (620, 260), "white")
    draw = ImageDraw.Draw(picture)
    font = ImageFont.truetype(str(next(manrope().glob("*egular*"))), 26)
    for number, line in enumerate(LINES):
        draw.text((40, 40 + 60 * number), line, font=font, fill="black")
    picture = picture.rotate(-90 * turns, expand=True)
    return image(picture)


def image(picture: Image.Image) -> PageImage:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return PageImage(1, picture.width, picture.height, out.getvalue())


@pytest.mark.slow
@pytest.mark.parametrize("turns", range(4))
def test_rapidocr_reads_a_page_whichever_way_it_lies(turns):
    found = asyncio.run(ocr.provider("rapidocr").read(page(turns)))
    assert tuple(line.text for line in spatial.layout(found)) == LINES
    assert spatial.quarter_turns(found) == turns
    (name,) = [word for word in found if word.text == "Metformin"]
    # The word stands where it is drawn, on the page as it lies.
    left, top, right, bottom = 40, 160, 175, 200
    where = [(left, top, right, bottom), (260 - bottom, left, 260 - top, right)]
    where += [(620 - right, 260 - bottom, 620 - left, 260 - top), (top, 620 - right, bottom, 620 - left)]
    box = (name.x, name.y, name.x + name.width, name.y + name.height)
    assert box == pytest.approx(where[turns], abs=14)
    assert all(0 < word.confidence <= 1 for word in found)


@pytest.mark.slow
def test_an_empty_page_has_no_words_and_nothing_is_logged(caplog):
    with caplog.at_level(logging.DEBUG):
        assert asyncio.run(ocr.provider("rapidocr").read(image(Image.new("RGB", (400, 500), "white")))) == []
    assert not [record for record in caplog.records if "rapid" in record.name.lower()]


@pytest.mark.slow
def test_the_event_loop_runs_on_while_a_page_is_read_and_the_models_are_loaded_once():
    turns = 0

    async def both():
        nonlocal turns
        first, second = ocr.provider("rapidocr"), ocr.provider("rapidocr")
        reading = asyncio.gather(first.read(page()), second.read(page()))
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        return reading.result()

    first, second = asyncio.run(both())
    assert [word.text for word in first] == [word.text for word in second]
    assert turns > 100
    assert sum(thread.name.startswith("rapidocr") for thread in threading.enumerate()) == 1


# --- tesseract: a command of its own, so the double is one too


def command(tmp_path, script: str) -> ocr.Settings:
    path = tmp_path / "tesseract"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return ocr.Settings(tesseract_command=str(path), timeout=timedelta(seconds=20))


TABLE = (
    "level\\tpage_num\\tblock_num\\tpar_num\\tline_num\\tword_num\\tleft\\ttop\\twidth\\theight\\tconf\\ttext\\n"
    "1\\t1\\t0\\t0\\t0\\t0\\t0\\t0\\t620\\t260\\t-1\\t\\n"
    '5\\t1\\t1\\t1\\t1\\t1\\t40\\t41\\t100\\t30\\t96.5\\tHämoglobin\\n5\\t1\\t1\\t1\\t1\\t2\\t150\\t41\\t20\\t30\\t12\\t"\\n'
)


def test_tesseract_gets_the_page_and_gives_a_table_of_words(tmp_path):
    settings = command(
        tmp_path, f"cat > {tmp_path}/page.png; echo \"$@\" > {tmp_path}/asked; printf '{TABLE}'"
    )
    found = asyncio.run(ocr.provider("tesseract", settings).read(page()))
    assert [(word.text, word.x, word.y, word.width, word.height, word.confidence) for word in found] == [
        ("Hämoglobin", 40, 41, 100, 30, 0.965),
        ('"', 150, 41, 20, 30, 0.12),
    ]
    assert (tmp_path / "page.png").read_bytes() == page().png
    assert (tmp_path / "asked").read_text().split() == [
        "stdin",
        "stdout",
        "-l",
        "eng+deu",
        "--psm",
        "3",
        "tsv",
    ]


@pytest.mark.parametrize(
    "script", ["cat > /dev/null; exit 1", "cat > /dev/null; printf 'level\\ttext\\n5\\tx\\n'"]
)
def test_a_tesseract_that_fails_is_worth_another_try(tmp_path, script):
    with pytest.raises(Unavailable):
        asyncio.run(ocr.provider("tesseract", command(tmp_path, script)).read(page()))


def test_a_tesseract_that_hangs_is_killed(tmp_path):
    settings = command(tmp_path, f"echo $$ > {tmp_path}/pid; exec cat /dev/zero > /dev/null")
    settings = ocr.Settings(tesseract_command=settings.tesseract_command, timeout=timedelta(seconds=0.5))
    with pytest.raises(Unavailable, match="in time"):
        asyncio.run(ocr.provider("tesseract", settings).read(page()))


# --- Google Vision


def annotation(*words):
    made = [
        {
            "symbols": [{"text": letter} for letter in text],
            "boundingBox": {"vertices": [{"y": 5}, {"x": 90, "y": 4}, {"x": 91, "y": 30}, {"x": 1, "y": 31}]},
            "confidence": 0.97,
        }
        for text in words
    ]
    page = {"blocks": [{"paragraphs": [{"words": made}]}]}
    return json.dumps({"responses": [{"fullTextAnnotation": {"pages": [page]}}]}).encode()


def vision(*answers):
    with Double(*answers) as double:
        settings = ocr.Settings(
            google_vision_url=double.url, google_vision_key=KEY, timeout=timedelta(seconds=20)
        )
        provider = ocr.provider("google-vision", settings)
        try:
            return asyncio.run(provider.read(page())), double.hits
        except (RateLimited, Unavailable, Rejected) as error:
            assert KEY not in str(error) + repr(provider)
            return error, double.hits


def test_vision_gets_the_page_and_its_words_are_read():
    found, (hit,) = vision((200, annotation("Hämoglobin", "14,2"), ""))
    assert [word.text for word in found] == ["Hämoglobin", "14,2"]
    assert (found[0].x, found[0].y, found[0].width, found[0].height, found[0].confidence) == (
        0,
        4,
        91,
        27,
        0.97,
    )
    assert hit.path == "/v1/images:annotate"
    assert hit.headers["x-goog-api-key"] == KEY
    (asked,) = hit.json["requests"]
    assert base64.b64decode(asked["image"]["content"]) == page().png
    assert asked["features"] == [{"type": "DOCUMENT_TEXT_DETECTION"}]


def test_a_page_that_is_empty_to_vision_has_no_words():
    assert vision((200, b'{"responses": [{}]}', ""))[0] == []


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (429, b"{}", RateLimited),
        (200, b'{"responses": [{"error": {"code": 8, "message": "Quota"}}]}', RateLimited),
        (200, b'{"responses": [{"error": {"code": 14}}]}', Unavailable),
        (200, b'{"responses": [{"error": {"code": 3}}]}', Rejected),
        (200, b'{"responses": []}', Unavailable),
        (200, b"no", Unavailable),
        (403, b"{}", Rejected),
        (503, b"{}", Unavailable),
    ],
)
def test_what_vision_says_of_failures_is_told_apart(status, body, expected):
    assert type(vision((status, body, ""))[0]) is expected


@pytest.mark.parametrize("name", ["google-vision", "tesseract", "eyes"])
def test_a_provider_that_is_not_set_up_says_so(name):
    with pytest.raises(Rejected):
        ocr.provider(name, ocr.Settings(tesseract_command="no-such-command"))


def test_settings_come_from_the_environment_and_wrong_ones_are_named():
    settings = ocr.Settings.from_environ({"INTAKE_OCR_THREADS": "1", "GOOGLE_CLOUD_API_KEY": KEY})
    assert (settings.threads, settings.concurrency, settings.google_vision_key) == (1, 1, KEY)
    assert KEY not in repr(settings)
    with pytest.raises(ValueError, match="INTAKE_OCR_THREADS must be a whole number from 1 to 64"):
        ocr.Settings.from_environ({"INTAKE_OCR_THREADS": "many"})
