"""Files that nobody should open: bombs, files of two types, active, encrypted and broken ones, all made here.

    python -m tests.apps.intake.reading.hostile make FOLDER [NAME …]
    python -m tests.apps.intake.reading.hostile open FOLDER [NAME …]

The second puts the files of the first through scan and page images, and prints what became of each, and the largest
memory that a child has used so far.  Two commands, because a child is born as large as its parent, which has just made
a bomb, as far as the kernel's accounts go.
"""

from __future__ import annotations

import io
import json
import resource
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import numpy as np
import pikepdf
from pikepdf import Array, Dictionary, Name, String
from PIL import Image

from onceward_apps.intake.reading import pages, scan
from onceward_apps.intake.reading.errors import Refused
from onceward_apps.intake.reading.model import Limits

Made = tuple[str, bytes, set[str]]
FILES: Final[dict[str, Callable[[], Made]]] = {}
LIMITS: Final = Limits(cpu=timedelta(seconds=4), wall=timedelta(seconds=60))


def hostile(make: Callable[[], Made]) -> Callable[[], Made]:
    """Register a maker: what the file is declared to be, its bytes, and the codes that it may be refused with."""
    FILES[make.__name__] = make
    return make


def packed(megabytes: int, before: bytes = b"") -> bytes:
    """What unpacks to so many megabytes of spaces behind some bytes, made without having them all at once."""
    space = b" " * (1 << 20)
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = engine.compress(before) + engine.flush(zlib.Z_FULL_FLUSH)
    # After a full flush nothing refers back: the same bytes can stand there again and again.
    block = engine.compress(space) + engine.flush(zlib.Z_FULL_FLUSH)
    check = zlib.adler32(before)
    for _ in range(megabytes):
        check = zlib.adler32(space, check)
    return b"\x78\xda" + head + block * megabytes + engine.flush() + struct.pack(">I", check)


# --- PDF


def blank(edit: Callable[[pikepdf.Pdf], None] = lambda _: None, **options: object) -> bytes:
    with pikepdf.new() as pdf:
        pdf.add_blank_page(page_size=(595, 842))
        edit(pdf)
        out = io.BytesIO()
        pdf.save(out, **options)  # type: ignore[arg-type]
        return out.getvalue()


def _script(pdf: pikepdf.Pdf) -> None:
    pdf.Root.OpenAction = Dictionary(S=Name.JavaScript, JS=String("app.alert(1)"))


@hostile
def pdf_script() -> Made:
    return "a.pdf", blank(_script), {"active_content"}


@hostile
def pdf_script_packed_away() -> Made:
    def edit(pdf: pikepdf.Pdf) -> None:
        action = pdf.make_indirect(Dictionary(S=Name.JavaScript, JS=String("app.alert(1)")))
        pdf.pages[0].obj.AA = Dictionary(O=action)

    return "a.pdf", blank(edit, object_stream_mode=pikepdf.ObjectStreamMode.generate), {"active_content"}


@hostile
def pdf_script_by_name() -> Made:
    def edit(pdf: pikepdf.Pdf) -> None:
        pdf.Root.Names = Dictionary(
            JavaScript=Dictionary(Names=Array([String("x"), Dictionary(S=Name.GoTo)]))
        )

    return "a.pdf", blank(edit), {"active_content"}


@hostile
def pdf_launch() -> Made:
    def edit(pdf: pikepdf.Pdf) -> None:
        link = Dictionary(Type=Name.Annot, Subtype=Name.Link, Rect=Array([0, 0, 9, 9]))
        link.A = Dictionary(S=Name.Launch, F=String("calc.exe"))
        pdf.pages[0].obj.Annots = Array([link])

    return "a.pdf", blank(edit), {"active_content"}


@hostile
def pdf_attachment() -> Made:
    def edit(pdf: pikepdf.Pdf) -> None:
        pdf.attachments["invoice.exe"] = b"MZ" + bytes(100)

    return "a.pdf", blank(edit), {"active_content"}


@hostile
def pdf_form_with_code() -> Made:
    def edit(pdf: pikepdf.Pdf) -> None:
        pdf.Root.AcroForm = Dictionary(Fields=Array([]), XFA=pdf.make_stream(b"<xdp/>"))

    return "a.pdf", blank(edit), {"active_content"}


@hostile
def pdf_form_that_sends() -> Made:
    def edit(pdf: pikepdf.Pdf) -> None:
        pdf.pages[0].obj.AA = Dictionary(O=Dictionary(S=Name.SubmitForm, F=String("http://example.org")))

    return "a.pdf", blank(edit), {"active_content"}


@hostile
def pdf_password() -> Made:
    locked = pikepdf.Encryption(owner="owner", user="user")
    return "a.pdf", blank(encryption=locked), {"encrypted"}


@hostile
def pdf_bomb() -> Made:
    def edit(pdf: pikepdf.Pdf) -> None:
        stream = pdf.make_stream(b"")
        stream.write(packed(100), filter=Name.FlateDecode)
        pdf.pages[0].obj.Contents = stream

    return "a.pdf", blank(edit), {"bomb"}


@hostile
def pdf_bomb_packed_twice() -> Made:
    def edit(pdf: pikepdf.Pdf) -> None:
        stream = pdf.make_stream(b"")
        twice = zlib.compress(packed(100), 9)
        stream.write(twice, filter=Array([Name.FlateDecode, Name.FlateDecode]))
        pdf.pages[0].obj.Contents = stream

    return "a.pdf", blank(edit), {"bomb"}


@hostile
def pdf_bomb_of_many_streams() -> Made:
    def edit(pdf: pikepdf.Pdf) -> None:
        content = packed(50)
        for number in range(8):
            stream = pdf.make_stream(b"")
            stream.write(content, filter=Name.FlateDecode)
            pdf.pages[0].obj[f"/X{number}"] = stream

    return "a.pdf", blank(edit), {"bomb"}


@hostile
def pdf_bomb_in_an_object_stream() -> Made:
    # The catalogue lies in a packed stream of 600 MB, which a reader unpacks before it knows anything.
    body = b"1 0 2 37 " + b"<</Type/Catalog/Pages 2 0 R>>        " + b"<</Type/Pages/Count 0/Kids[]>>"
    content = packed(600, body)
    out = b"%PDF-1.5\n"
    at = len(out)
    out += b"3 0 obj<</Type/ObjStm/N 2/First 9/Filter/FlateDecode/Length %d>>stream\n" % len(content)
    out += content + b"\nendstream endobj\n"
    table = len(out)
    rows = b"".join(
        struct.pack(">BIH", *row) for row in ((0, 0, 65535), (2, 3, 0), (2, 3, 1), (1, at, 0), (1, table, 0))
    )
    out += b"4 0 obj<</Type/XRef/Size 5/W[1 4 2]/Root 1 0 R/Length %d>>stream\n" % len(rows)
    out += rows + b"\nendstream endobj\nstartxref\n%d\n%%%%EOF" % table
    return "a.pdf", out, {"memory_limit", "malformed", "bomb"}


@hostile
def pdf_huge_picture() -> Made:
    def edit(pdf: pikepdf.Pdf) -> None:
        image = pdf.make_stream(b"")
        image.write(zlib.compress(bytes(1000)), filter=Name.FlateDecode)
        image.Type, image.Subtype = Name.XObject, Name.Image
        image.Width, image.Height, image.BitsPerComponent = 60_000, 60_000, 8
        image.ColorSpace = Name.DeviceGray
        pdf.pages[0].obj.Resources = Dictionary(XObject=Dictionary(I=image))
        pdf.pages[0].obj.Contents = pdf.make_stream(b"q 500 0 0 500 0 0 cm /I Do Q")

    return "a.pdf", blank(edit), {"too_many_pixels"}


@hostile
def pdf_that_draws_itself_for_ever() -> Made:
    def edit(pdf: pikepdf.Pdf) -> None:
        form = pdf.make_stream(b"0 0 5 5 re f")
        form.Type, form.Subtype, form.BBox = Name.XObject, Name.Form, Array([0, 0, 500, 500])
        for _ in range(9):
            outer = pdf.make_stream(b"/F Do\n" * 40)
            outer.Type, outer.Subtype, outer.BBox = Name.XObject, Name.Form, Array([0, 0, 500, 500])
            outer.Resources = Dictionary(XObject=Dictionary(F=pdf.make_indirect(form)))
            form = outer
        pdf.pages[0].obj.Resources = Dictionary(XObject=Dictionary(F=form))
        pdf.pages[0].obj.Contents = pdf.make_stream(b"/F Do")

    return "a.pdf", blank(edit), {"time_limit", "memory_limit", "malformed"}


@hostile
def pdf_many_pages() -> Made:
    def edit(pdf: pikepdf.Pdf) -> None:
        for _ in range(LIMITS.pages):
            pdf.add_blank_page(page_size=(100, 100))

    return "a.pdf", blank(edit), {"too_many_pages"}


@hostile
def pdf_pages_in_a_ring() -> Made:
    made = (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        b"2 0 obj<</Type/Pages/Count 9/Kids[2 0 R 2 0 R]>>endobj\ntrailer<</Root 1 0 R/Size 3>>\nstartxref\n0\n%%EOF"
    )
    return "a.pdf", made, {"malformed", "too_many_pages"}


@hostile
def pdf_nested_deeply() -> Made:
    made = (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R/X " + b"[" * 100_000 + b"]" * 100_000 + b">>endobj\n"
    )
    made += b"2 0 obj<</Type/Pages/Count 0/Kids[]>>endobj\ntrailer<</Root 1 0 R/Size 3>>\nstartxref\n0\n%%EOF"
    return "a.pdf", made, {"malformed"}


@hostile
def pdf_cut_off() -> Made:
    return "a.pdf", blank()[:-200], {"malformed"}


@hostile
def pdf_without_pages() -> Made:
    with pikepdf.new() as pdf:
        out = io.BytesIO()
        pdf.save(out)
    return "a.pdf", out.getvalue(), {"malformed"}


@hostile
def pdf_of_rubbish() -> Made:
    rubbish = np.random.default_rng(1).bytes(50_000)
    return "a.pdf", b"%PDF-1.7\n" + rubbish + b"\n%%EOF", {"malformed"}


@hostile
def pdf_and_zip() -> Made:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as inside:
        inside.writestr("run.sh", "echo")
    return "a.pdf", blank() + archive.getvalue(), {"polyglot"}


@hostile
def pdf_and_web_page() -> Made:
    return "a.pdf", b"%PDF-1.4\n<html><script>alert(1)</script></html>\n" + blank()[9:], {"polyglot"}


# --- pictures


def picture(kind: str, size: tuple[int, int] = (300, 200), **options: object) -> bytes:
    out = io.BytesIO()
    noise = np.random.default_rng(2).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).save(out, kind, **options)
    return out.getvalue()


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _png(width: int, height: int, body: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


@hostile
def jpeg_and_pdf() -> Made:
    plain = picture("JPEG")
    body = b"\n" + blank()[:800]
    remark = b"\xff\xfe" + struct.pack(">H", len(body) + 2) + body
    return "a.jpg", plain[:2] + remark + plain[2:], {"polyglot"}


@hostile
def jpeg_and_zip() -> Made:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as inside:
        inside.writestr("run.class", bytes(100))
    return "a.jpg", picture("JPEG") + archive.getvalue(), {"polyglot"}


@hostile
def jpeg_and_script() -> Made:
    return "a.jpg", picture("JPEG", comment=b"<?php system($_GET['c']); ?>"), {"polyglot"}


@hostile
def png_and_program() -> Made:
    return "a.png", picture("PNG") + b"MZ" + bytes(500), {"polyglot"}


@hostile
def png_and_web_page() -> Made:
    plain = picture("PNG")
    text = _chunk(b"tEXt", b"Comment\0<script>alert(1)</script>")
    return "a.png", plain[:33] + text + plain[33:], {"polyglot"}


@hostile
def png_bomb() -> Made:
    return "a.png", _png(50_000, 50_000, zlib.compress(bytes(1_000_000), 9)), {"too_many_pixels"}


@hostile
def png_of_text() -> Made:
    # A packed remark of 100 MB in a picture of one pixel.
    plain = _png(1, 1, zlib.compress(b"\0\0"))
    text = _chunk(b"zTXt", b"Comment\0\0" + packed(100))
    return "a.png", plain[:33] + text + plain[33:], {"malformed", "memory_limit", "bomb"}


@hostile
def png_cut_off() -> Made:
    return "a.png", picture("PNG")[:-4000], {"malformed"}


@hostile
def png_with_too_little() -> Made:
    return "a.png", _png(4000, 4000, zlib.compress(bytes(100))), {"malformed"}


@hostile
def jpeg_cut_off() -> Made:
    return "a.jpg", picture("JPEG")[:-2000], {"malformed"}


@hostile
def jpeg_that_says_it_is_huge() -> Made:
    plain = bytearray(picture("JPEG"))
    at = plain.index(b"\xff\xc0")
    plain[at + 5 : at + 9] = struct.pack(">HH", 65_000, 65_000)
    return "a.jpg", bytes(plain), {"too_many_pixels"}


@hostile
def tiff_that_says_it_is_huge() -> Made:
    plain = bytearray(picture("TIFF"))
    at = struct.unpack("<I", plain[4:8])[0]
    for entry in range(at + 2, at + 2 + 24, 12):
        plain[entry + 2 : entry + 12] = struct.pack("<HII", 4, 1, 60_000)
    return "a.tif", bytes(plain), {"too_many_pixels"}


@hostile
def tiff_of_many_pages() -> Made:
    out = io.BytesIO()
    page = Image.new("1", (16, 16))
    page.save(out, "TIFF", save_all=True, append_images=[page] * LIMITS.pages)
    return "a.tif", out.getvalue(), {"too_many_pages"}


@hostile
def tiff_of_rubbish() -> Made:
    return "a.tif", b"II*\0" + np.random.default_rng(3).bytes(5000), {"malformed"}


@hostile
def heic_of_rubbish() -> Made:
    return (
        "a.heic",
        b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + np.random.default_rng(4).bytes(9000),
        {"malformed"},
    )


# --- other things


@hostile
def nothing() -> Made:
    return "a.pdf", b"", {"empty"}


@hostile
def a_program() -> Made:
    return "a.pdf", b"MZ" + bytes(3000), {"unknown_type"}


@hostile
def a_web_page() -> Made:
    return "a.png", b"<!doctype html><script>alert(1)</script>", {"unknown_type"}


@hostile
def a_drawing_with_scripts() -> Made:
    return "a.png", b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>', {"unknown_type"}


@hostile
def an_archive() -> Made:
    return "a.pdf", b"PK\x03\x04" + bytes(500), {"unknown_type"}


@hostile
def a_gif() -> Made:
    return "a.gif", picture("GIF"), {"unknown_type"}


@hostile
def png_named_pdf() -> Made:
    return "a.pdf", picture("PNG"), {"type_mismatch"}


@hostile
def pdf_named_png() -> Made:
    return "image/png", blank(), {"type_mismatch"}


def outcome(declared: str, path: Path) -> str:
    """What became of a file: the code of its refusal, or that it was let through."""
    try:
        scanned = scan.check(path, declared_type=declared, limits=LIMITS)
        for _ in pages.render(path, scanned.kind, limits=LIMITS):
            pass
    except Refused as refused:
        return refused.code
    return "let through"


def make(folder: Path, name: str) -> None:
    declared, content, _ = FILES[name]()
    (folder / name).write_bytes(content)
    (folder / f"{name}.declared").write_text(declared)


def main() -> None:
    task, folder, *names = sys.argv[1:]
    for name in names or FILES:
        if task == "make":
            make(Path(folder), name)
            continue
        became = outcome(Path(folder, f"{name}.declared").read_text(), Path(folder, name))
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(json.dumps({"name": name, "outcome": became, "peak_kilobytes": peak}), flush=True)


if __name__ == "__main__":
    main()
