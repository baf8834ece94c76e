"""Page images: upright, of a bounded size, in plain colours, whatever the file was."""

from __future__ import annotations

import io
import subprocess

import numpy as np
import pytest
from PIL import Image

from onceward_apps.intake.reading import pages
from onceward_apps.intake.reading.errors import Refused
from tests.apps.intake import corpus
from tests.apps.intake.reading import hostile

pytestmark = pytest.mark.slow


def drawn(path, kind, **options):
    return [(image, Image.open(io.BytesIO(image.png))) for image in pages.render(path, kind, **options)]


def test_a_pdf_is_drawn_at_the_resolution_asked_for(tmp_path):
    (tmp_path / "a").write_bytes(corpus.pdf(corpus.samples()[0]))
    ((page, image),) = drawn(tmp_path / "a", "pdf", dpi=100)
    assert page.number == 1
    assert (page.width, page.height) == image.size == pytest.approx((827, 1169), abs=2)
    assert image.mode == "RGB"
    assert np.asarray(image).min() < 60


def test_a_page_of_any_size_becomes_an_image_of_a_bounded_one(tmp_path):
    poster = hostile.blank(lambda pdf: pdf.pages[0].obj.__setattr__("MediaBox", [0, 0, 14_000, 14_000]))
    (tmp_path / "a").write_bytes(poster)
    ((page, _),) = drawn(tmp_path / "a", "pdf", dpi=300)
    assert page.width * page.height <= 16_100_000


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_is_turned_as_its_camera_was_held(orientation, tmp_path):
    # The upper left corner is black; every other is white.
    upright = Image.new("RGB", (60, 40), "white")
    upright.paste("black", (0, 0, 20, 12))
    back = {
        1: [],
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }
    taken = upright
    for step in back[orientation]:
        taken = taken.transpose(step)
    exif = Image.Exif()
    exif[0x0112] = orientation
    taken.save(tmp_path / "a", "PNG", exif=exif)
    ((page, image),) = drawn(tmp_path / "a", "png")
    assert (page.width, page.height) == (60, 40)
    assert image.getpixel((5, 5)) == (0, 0, 0)
    assert image.getpixel((55, 35)) == image.getpixel((55, 5)) == image.getpixel((5, 35)) == (255, 255, 255)


def test_a_large_photograph_is_made_smaller_and_a_small_one_left(tmp_path):
    (tmp_path / "large").write_bytes(hostile.picture("JPEG", (3000, 4000)))
    (tmp_path / "small").write_bytes(hostile.picture("JPEG", (300, 200)))
    ((large, _),) = drawn(tmp_path / "large", "jpeg", dpi=150)
    ((small, _),) = drawn(tmp_path / "small", "jpeg", dpi=150)
    assert max(large.width, large.height) == round(150 * 11.69)
    assert (small.width, small.height) == (300, 200)


def test_every_page_of_a_fax_is_drawn_in_order(tmp_path):
    sheets = [Image.new("1", (100 + 10 * number, 100)) for number in range(3)]
    sheets[0].save(tmp_path / "a", "TIFF", save_all=True, append_images=sheets[1:], compression="group4")
    assert [(page.number, page.width) for page, _ in drawn(tmp_path / "a", "tiff")] == [
        (1, 100),
        (2, 110),
        (3, 120),
    ]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16"])
def test_dark_on_light_stays_so_in_every_manner_of_colour(mode, tmp_path):
    if mode == "I;16":
        picture = Image.fromarray(np.full((20, 30), 65_535, dtype=np.uint16))
    elif mode in {"LA", "RGBA"}:
        # Transparent black: paper is white.
        picture = Image.new("RGBA", (30, 20), (0, 0, 0, 0)).convert(mode)
    else:
        picture = Image.new("RGB", (30, 20), "white").convert(mode)
    picture.save(tmp_path / "a", "PNG")
    ((_, image),) = drawn(tmp_path / "a", "png")
    assert image.mode == "RGB"
    assert min(image.getpixel((3, 3))) >= 254


def test_a_child_nobody_waits_for_any_longer_is_gone(tmp_path, monkeypatch):
    children = []
    start = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *args, **options: children.append(start(*args, **options)) or children[-1]
    )
    sheet = Image.new("L", (400, 400))
    sheet.save(tmp_path / "a", "TIFF", save_all=True, append_images=[sheet] * 50)
    images = pages.render(tmp_path / "a", "tiff")
    assert next(images).number == 1
    images.close()
    assert children[0].returncode is not None


def test_a_page_that_cannot_be_drawn_is_a_refusal_and_not_half_a_document(tmp_path):
    (tmp_path / "a").write_bytes(b"%PDF-1.4\nnothing\n%%EOF")
    with pytest.raises(Refused):
        drawn(tmp_path / "a", "pdf")


@pytest.mark.parametrize("dpi", [0, 10_000])
def test_a_resolution_out_of_bounds_is_an_error(dpi, tmp_path):
    with pytest.raises(ValueError, match="dpi must be from 36 to 600"):
        list(pages.render(tmp_path / "a", "pdf", dpi=dpi))
