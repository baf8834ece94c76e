from __future__ import annotations

import io

import pytest
from PIL import Image

from onceward_apps.kit import qr
from tests.support.scanning import qr_codes

CONTENT = "https://proof.example/batch/PR-7K2M9Q"


@pytest.mark.parametrize("pixels", [120, 300, 301, 1_000])
def test_a_png_has_the_size_that_was_asked_for_and_can_be_read(pixels):
    image = Image.open(io.BytesIO(qr.png(CONTENT, pixels=pixels)))

    assert image.size == (pixels, pixels)
    assert [code.text for code in qr_codes(image.convert("L"))] == [CONTENT]


def test_a_code_that_does_not_fit_is_an_error_and_not_a_blur():
    with pytest.raises(ValueError, match="does not fit into 20 pixels"):
        qr.png(CONTENT, pixels=20)


def test_an_svg_leaves_size_and_colour_to_the_page():
    drawing = qr.svg(CONTENT)
    assert "currentColor" in drawing
    assert "width=" not in drawing.split(">")[0]
    assert "viewBox" in drawing
