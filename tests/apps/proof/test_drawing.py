"""QR code, label and card: decoded by three independent readers, measured, and checked as print files."""

from __future__ import annotations

import io
from ctypes.util import find_library
from datetime import date
from uuid import UUID

import cv2
import numpy as np
import pikepdf
import pypdfium2
import pytest
import typst
from PIL import Image, ImageFilter

from onceward_apps.proof import drawing, sample
from onceward_apps.proof.domain import Batch, Brand, Formulation, Product
from tests.support.scanning import qr_codes

MM = 72 / 25.4
URL = "https://proof.protocolraw.co.uk/batch/PR-W8YM7CX3"
TRANSITION = "https://portal.protocolraw.co.uk?view=transition"


def make_batch(**given) -> Batch:
    product = dict(
        zip(
            ("sku", "name", "label_name", "description", "net_weight_g", "ingredients"),
            sample.PRODUCT,
            strict=True,
        )
    )
    product |= {name: given.pop(name) for name in list(given) if name in product}
    return Batch(**{
        "batch_id": UUID(int=1), "batch_code": "PR-260320-001", "public_batch_id": "PR-W8YM7CX3", "status": "QA_HOLD",
        "produced_at": date(2026, 3, 20), "expiry_date": date(2027, 3, 20), "kg_produced": "500", "proof_url": URL,
        "product": Product(**product), "formulation": Formulation(version="v2.1", name="Complete Adult"),
        "brand": Brand(company_details="Protocol Raw Ltd, United Kingdom"), **given,
    })  # fmt: skip


def picture(pdf: bytes, *, page=0, dpi=300) -> Image.Image:
    return pypdfium2.PdfDocument(pdf)[page].render(scale=dpi / 72).to_pil().convert("L")


def by_zxing(image):
    return [code.text for code in qr_codes(image)]


def by_opencv(image):
    found = cv2.QRCodeDetector().detectAndDecodeMulti(np.array(image))
    return [text for text in found[1] if text] if found[0] else []


def by_zbar(image):
    from pyzbar import pyzbar

    return [code.data.decode() for code in pyzbar.decode(image, [pyzbar.ZBarSymbol.QRCODE])]


NEEDS_ZBAR = pytest.mark.skipif(find_library("zbar") is None, reason="libzbar is not installed")
READERS = pytest.mark.parametrize("read", [by_zxing, by_opencv, pytest.param(by_zbar, marks=NEEDS_ZBAR)])


@READERS
def test_the_qr_code_of_the_label_is_read_from_the_rendered_pdf(read):
    assert read(picture(drawing.label_pdf(make_batch()))) == [URL]


@READERS
def test_the_qr_png_has_300_pixels_and_is_read(read):
    image = Image.open(io.BytesIO(drawing.qr_png(make_batch())))
    assert image.size == (300, 300)
    assert read(image.convert("L")) == [URL]


@pytest.mark.slow
def test_a_label_that_was_turned_blurred_or_printed_coarsely_is_still_read():
    pdf = drawing.label_pdf(make_batch())
    damaged = [picture(pdf, dpi=dpi) for dpi in (150, 200, 300)]
    damaged += [picture(pdf).rotate(angle, expand=True, fillcolor=255) for angle in range(0, 360, 30)]
    damaged += [picture(pdf).filter(ImageFilter.GaussianBlur(radius)) for radius in (1, 1.5, 2)]
    assert [by_zxing(image) for image in damaged] == [[URL]] * len(damaged)


def test_the_label_is_one_page_of_exactly_100_by_150_millimetres():
    document = pypdfium2.PdfDocument(drawing.label_pdf(make_batch()))
    assert len(document) == 1
    width, height = (side / MM for side in document[0].get_size())
    assert (width, height) == (pytest.approx(100, abs=0.01), pytest.approx(150, abs=0.01))


def dark_box(image: Image.Image, dpi: int) -> tuple[float, ...]:
    (code,) = qr_codes(image)
    corners = [code.position.top_left, code.position.top_right, code.position.bottom_left]
    across = corners[1].x - corners[0].x
    down = corners[2].y - corners[0].y
    return tuple(side / dpi * 25.4 for side in (corners[0].x, corners[0].y, across, down))


def test_the_qr_code_is_25_millimetres_wide_and_stands_top_right():
    left, top, across, down = dark_box(picture(drawing.label_pdf(make_batch()), dpi=600), 600)
    # Thirty-three modules of the forty-one that quiet zone and code have together.
    assert across == pytest.approx(25 * 33 / 41, abs=0.3)
    assert down == pytest.approx(across, abs=0.2)
    assert left > 60
    assert top < 40


@pytest.mark.parametrize(
    "pdf", [drawing.label_pdf(make_batch()), drawing.card_pdf(TRANSITION)], ids=["label", "card"]
)
def test_print_files_are_sound_with_embedded_fonts_and_drawn_codes(pdf):
    with pikepdf.open(io.BytesIO(pdf)) as document:
        assert document.check_pdf_syntax() == []
        for page in document.pages:
            resources = page.Resources
            # Nothing is painted: the code is a drawing, sharp on any printer.
            assert not [
                name
                for name, thing in resources.get("/XObject", {}).items()
                if thing.get("/Subtype") == "/Image"
            ]
            for font in resources.Font.values():
                (descendant,) = font.DescendantFonts
                assert {"/FontFile2", "/FontFile3"} & set(descendant.FontDescriptor.keys())
                assert "Manrope" in str(font.BaseFont)


def words(pdf: bytes, page=0) -> str:
    text = pypdfium2.PdfDocument(pdf)[page].get_textpage().get_text_range()
    return " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())


def test_the_label_says_what_the_contract_lists_in_its_order():
    # Letters that are spaced out come with spaces.
    said = words(drawing.label_pdf(make_batch())).replace(" ", "")
    order = [
        "PROTOCOL RAW", "Proof, not promises", "PROTOCOL RAW COMPLETE", "Complete raw food for adult dogs", "500 g",
        "PR-260320-001", "20 March 2026", "20 March 2027", "Beef (42 %), chicken", "Made in the UK",
        "Protocol Raw Ltd, United Kingdom", "Verified safe, batch by batch",
    ]  # fmt: skip
    places = [said.find(text.replace(" ", "")) for text in order]
    assert -1 not in places, said
    assert places == sorted(places)


def test_the_same_batch_gives_the_same_label():
    assert drawing.label_pdf(make_batch()) == drawing.label_pdf(make_batch())


def test_a_long_list_of_ingredients_is_set_smaller_and_one_that_does_not_fit_is_an_error():
    long = sample.PRODUCT[5] + " " + sample.PRODUCT[5]
    assert words(drawing.label_pdf(make_batch(ingredients=long))).count("vitamin E") == 2
    with pytest.raises(typst.TypstError, match="does not fit"):
        drawing.label_pdf(make_batch(ingredients=long * 6))


@pytest.mark.parametrize("text", ["label_name", "description", "ingredients"])
def test_a_word_that_no_line_can_hold_is_an_error_and_not_cut_off(text):
    with pytest.raises(typst.TypstError, match="does not fit"):
        drawing.label_pdf(make_batch(**{text: "Beef " + 150 * "W"}))
    # Where a line can be broken, it is.
    drawing.label_pdf(make_batch(ingredients="Beef " + "-".join(30 * ["offal"])))


@pytest.mark.parametrize("character", ["日", "🐶", "ع"])
def test_a_character_that_the_typeface_lacks_is_named_and_not_printed_as_a_box(character):
    with pytest.raises(drawing.MissingCharacter, match=rf"U\+{ord(character):04X}"):
        drawing.label_pdf(make_batch(ingredients=f"Beef, {character}, salt"))


def test_what_labels_usually_say_can_be_drawn():
    drawing.check_characters(
        ["Bœuf, crème fraîche, Größe ½ × 2 °C – “−18” € £ 5\N{NO-BREAK SPACE}%\nŁódź, “Ελλάδα”"]
    )


def test_texts_are_texts_and_not_markup():
    odd = 'Meat & "bones" #panic() $x$ *y* <b> \\ @z'
    assert odd in words(drawing.label_pdf(make_batch(ingredients=odd)))
    assert "&lt;b&gt;" in drawing.label_html(make_batch(ingredients=odd))


def test_a_code_past_999_fits():
    assert "PR-260320-12345" in words(drawing.label_pdf(make_batch(batch_code="PR-260320-12345")))


# ---------------------------------------------------------------- the card


@pytest.mark.parametrize(("bleed", "size"), [(False, (74, 105)), (True, (80, 111))])
def test_the_card_is_a7_with_two_sides(bleed, size):
    document = pypdfium2.PdfDocument(drawing.card_pdf(TRANSITION, bleed=bleed))
    assert [tuple(round(side / MM, 2) for side in page.get_size()) for page in document] == [size, size]


@READERS
def test_the_card_has_one_code_on_its_front(read):
    card = drawing.card_pdf(TRANSITION)
    assert read(picture(card, page=0)) == [TRANSITION]
    assert read(picture(card, page=1)) == []


def test_the_card_says_what_the_contract_lists():
    card = drawing.card_pdf(TRANSITION)
    front, back = words(card, 0), words(card, 1)
    for text in (
        "Your First 10 Days",
        "Day 1–2",
        "25%",
        "100%",
        "Scan for your personalised feeding plan",
        "Handle with care",
    ):
        assert text in front
    for text in (
        "Verified Safe, Batch by Batch",
        "Every pouch has a QR code",
        "Scan any pouch to verify",
        "independent lab",
    ):
        assert text in back
    # Universal: no batch on it.
    assert "PR-" not in front + back
