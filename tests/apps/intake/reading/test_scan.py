"""What is let through and what is not, and that looking into it costs little."""

from __future__ import annotations

import hashlib
import json
import os
import socketserver
import struct
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from pikepdf import Array, Dictionary, Encryption, Name, Permissions, String
from PIL import Image

from onceward_apps.intake.reading import confined, kinds, scan
from onceward_apps.intake.reading.errors import Refused, Rejected, Unavailable
from onceward_apps.intake.reading.model import Limits
from tests.apps.intake.reading import hostile

pytestmark = pytest.mark.slow


@pytest.fixture
def file(tmp_path):
    def put(content: bytes) -> Path:
        path = tmp_path / "file"
        path.write_bytes(content)
        return path

    return put


@pytest.mark.parametrize("name", hostile.FILES)
def test_a_hostile_file_is_refused(name, tmp_path):
    declared, content, codes = hostile.FILES[name]()
    path = tmp_path / "file"
    path.write_bytes(content)
    assert hostile.outcome(declared, path) in codes


def test_no_bomb_makes_the_child_larger_than_its_limit(tmp_path):
    names = ["pdf_bomb", "pdf_bomb_packed_twice", "pdf_bomb_in_an_object_stream", "png_bomb", "png_of_text"]
    command = [sys.executable, "-m", hostile.__name__]
    for task in ("make", "open"):
        ran = subprocess.run([*command, task, tmp_path, *names], check=True, capture_output=True, text=True)
    outcomes = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [each["name"] for each in outcomes] == names
    assert all(each["outcome"] != "let through" for each in outcomes)
    assert max(each["peak_kilobytes"] for each in outcomes) <= 512 * 1024


@pytest.mark.parametrize(
    ("kind", "name"), [("JPEG", "a.jpg"), ("PNG", "scan.PNG"), ("TIFF", ".tiff"), ("JPEG", "image/jpeg; q=1")]
)
def test_an_ordinary_picture_is_let_through(kind, name, file):
    content = hostile.picture(kind)
    scanned = scan.check(file(content), declared_type=name)
    assert (scanned.kind, scanned.pages, scanned.findings) == (kind.lower(), 1, ())
    assert scanned.sha256 == hashlib.sha256(content).hexdigest()


def test_a_photograph_of_a_phone_is_let_through(file, tmp_path):
    import pillow_heif

    pillow_heif.from_pillow(Image.new("RGB", (640, 480), "white")).save(tmp_path / "a.heic")
    assert scan.check(tmp_path / "a.heic", declared_type="a.heic").kind == "heic"


def test_what_is_harmless_is_mentioned_and_let_through(file):
    def edit(pdf):
        link = Dictionary(Type=Name.Annot, Subtype=Name.Link, Rect=Array([0, 0, 9, 9]))
        link.A = Dictionary(S=Name.URI, URI=String("https://example.org"))
        pdf.pages[0].obj.Annots = Array([link])
        pdf.Root.AcroForm = Dictionary(Fields=Array([]))
        pdf.Root.OpenAction = Dictionary(S=Name.GoTo, D=Array([pdf.pages[0].obj, Name.Fit]))
        pdf.add_blank_page()

    # Anybody can open it; its author would rather not have it printed.
    locked = Encryption(owner="owner", user="", allow=Permissions(print_highres=False))
    scanned = scan.check(file(hostile.blank(edit, encryption=locked)), declared_type="application/pdf")
    assert scanned.pages == 2
    assert {finding.code for finding in scanned.findings} == {"links", "form", "restricted"}


def test_a_film_behind_a_photograph_is_mentioned_and_let_through(file):
    scanned = scan.check(
        file(hostile.picture("JPEG") + b"\0\0\0\x18ftypmp42" + bytes(5000)), declared_type=None
    )
    assert [finding.code for finding in scanned.findings] == ["trailing_data"]


def test_where_a_photograph_was_taken_is_mentioned(file):
    place = Image.Exif()
    place[0x8825] = {1: "N", 2: (52.0, 30.0, 0.0)}
    scanned = scan.check(file(hostile.picture("JPEG", exif=place)), declared_type=None)
    assert [finding.code for finding in scanned.findings] == ["location"]


def test_a_file_larger_than_allowed_is_not_opened(file):
    with pytest.raises(Refused) as refused:
        scan.check(file(hostile.picture("PNG")), declared_type=None, limits=Limits(bytes=1000))
    assert refused.value.code == "too_large"
    assert "more than 1000" in refused.value.message


def test_a_child_that_takes_too_long_is_killed(file):
    _, content, _ = hostile.pdf_that_draws_itself_for_ever()
    limits = Limits(memory=4 * 1024**3, cpu=timedelta(seconds=60), wall=timedelta(seconds=2))
    path = file(content)
    with pytest.raises(Refused) as refused:
        list(confined.run("draw", limits, path=str(path), kind="pdf", dpi=100))
    assert refused.value.code == "time_limit"


def test_a_child_that_computes_too_long_is_killed(file):
    _, content, _ = hostile.pdf_that_draws_itself_for_ever()
    limits = Limits(memory=4 * 1024**3, cpu=timedelta(seconds=1))
    with pytest.raises(Refused) as refused:
        list(confined.run("draw", limits, path=str(file(content)), kind="pdf", dpi=100))
    assert refused.value.code == "time_limit"


def test_a_picture_that_needs_more_memory_than_allowed_is_refused(file):
    limits = Limits(memory=160 * 1024 * 1024)
    with pytest.raises(Refused) as refused:
        scan.check(file(hostile._png(6000, 8000, b"x")), declared_type=None, limits=limits)
    assert refused.value.code in {"memory_limit", "malformed"}


def test_no_secret_of_the_parent_reaches_the_child(file, monkeypatch):
    seen = {}
    start = subprocess.Popen

    def watched(*args, **options):
        seen.update(options["env"])
        return start(*args, **options)

    monkeypatch.setenv("OPENAI_API_KEY", "a key of a test")
    monkeypatch.setattr(subprocess, "Popen", watched)
    scan.check(file(hostile.picture("PNG")), declared_type=None)
    assert set(seen) == {"PYTHONPATH", "LC_ALL", "MALLOC_ARENA_MAX"}


def test_a_refusal_says_nothing_of_the_content(file):
    secret = b"the-name-of-a-patient"
    with pytest.raises(Refused) as refused:
        scan.check(file(b"%PDF-1.4\n" + secret * 100 + b"\n%%EOF"), declared_type=None)
    assert "patient" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("image/jpg", "jpeg"),
        ("x.HEIF", "heic"),
        ("pdf", "pdf"),
        ("image/svg+xml", None),
        ("a.pdf.exe", None),
        ("", None),
    ],
)
def test_a_declared_type_is_a_content_type_an_extension_or_a_name(name, kind):
    assert kinds.declared(name) == kind


class Clamd(socketserver.BaseRequestHandler):
    """Speaks INSTREAM: finds the bytes EICAR, and answers as the server tells otherwise."""

    def handle(self):
        content = self.request.makefile("rb")
        assert content.read(10) == b"zINSTREAM\0"
        body = b""
        while size := struct.unpack(">I", content.read(4))[0]:
            body += content.read(size)
        self.server.bodies.append(body)
        answer = b"stream: Eicar-Test-Signature FOUND\0" if b"EICAR" in body else self.server.answer
        self.request.sendall(answer)


@pytest.fixture(params=["unix", "tcp"])
def clamd(request, tmp_path):
    if request.param == "unix":
        server = socketserver.ThreadingUnixStreamServer(str(tmp_path / "clamd.sock"), Clamd)
        server.address = f"unix:{tmp_path}/clamd.sock"
    else:
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Clamd)
        server.address = f"127.0.0.1:{server.server_address[1]}"
    server.answer, server.bodies, server.daemon_threads = b"stream: OK\0", [], True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_virus_scanner_gets_the_whole_file(clamd, file):
    content = hostile.picture("PNG", (800, 600))
    scan.check(file(content), declared_type=None, clamd=clamd.address)
    assert clamd.bodies == [content]


def test_what_the_virus_scanner_finds_is_refused(clamd, file):
    with pytest.raises(Refused) as refused:
        scan.check(file(hostile.picture("JPEG") + b"EICAR"), declared_type=None, clamd=clamd.address)
    assert refused.value.code == "malware"
    assert "Eicar-Test-Signature" in refused.value.message


@pytest.mark.parametrize("answer", [b"INSTREAM size limit exceeded. ERROR\0", b"", b"stream: OK, I think\0"])
def test_without_a_clear_answer_of_the_virus_scanner_nothing_is_let_through(clamd, file, answer):
    clamd.answer = answer
    with pytest.raises(Unavailable):
        scan.check(file(hostile.picture("PNG")), declared_type=None, clamd=clamd.address)


def test_without_a_virus_scanner_where_there_should_be_one_nothing_is_let_through(file, tmp_path):
    path = file(hostile.picture("PNG"))
    with pytest.raises(Unavailable):
        scan.check(path, declared_type=None, clamd=f"unix:{tmp_path}/nobody")
    with pytest.raises(Rejected):
        scan.check(path, declared_type=None, clamd="nowhere")


def test_the_child_may_write_no_file_and_open_few(file):
    # What the child does first, in a process of its own.
    script = (
        "import resource, json\n"
        "from onceward_apps.intake.reading.inside.__main__ import confine\n"
        "confine({'memory': 512 << 20, 'cpu': 5, 'wall': 9})\n"
        "names = ('RLIMIT_AS', 'RLIMIT_CPU', 'RLIMIT_FSIZE', 'RLIMIT_NOFILE', 'RLIMIT_CORE')\n"
        "print(json.dumps({name: resource.getrlimit(getattr(resource, name))[0] for name in names}))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, env=os.environ)
    assert json.loads(ran.stdout) == {
        "RLIMIT_AS": 512 << 20,
        "RLIMIT_CPU": 5,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_NOFILE": 32,
        "RLIMIT_CORE": 0,
    }
