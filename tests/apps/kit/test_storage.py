from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from onceward_apps.kit.storage import Storage

NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
OLD, NEW = b"a secret of yesterday, for tests only", b"a secret of today, also for tests only"


@pytest.fixture
def storage(tmp_path):
    return Storage((tmp_path / "bucket").as_uri(), "https://files.example/assets/", [NEW], ["open/"])


def parts(link):
    path, _, query = link.removeprefix("https://files.example/assets/").partition("?")
    return path, dict(item.split("=") for item in query.split("&"))


def test_a_file_comes_back_as_it_was_and_the_same_path_replaces_it(storage):
    async def story():
        await storage.put("a/b.txt", b"one", content_type="text/plain")
        await storage.put("a/b.txt", b"two", content_type="text/plain")
        read = await storage.get("a/b.txt")
        names = await storage.names("a")
        await storage.delete("a/b.txt")
        await storage.delete("a/b.txt")
        return read, names, await storage.names("a")

    assert asyncio.run(story()) == (b"two", ["a/b.txt"], [])


def test_what_is_not_there_is_a_file_not_found(storage):
    with pytest.raises(FileNotFoundError):
        asyncio.run(storage.get("a/b.txt"))


def test_a_link_opens_until_it_expires(storage):
    path, query = parts(storage.link("labels/PR-1.pdf", now=NOW, lasts=timedelta(days=30)))
    assert path == "labels/PR-1.pdf"
    assert storage.opens(path, **query, now=NOW + timedelta(days=29, hours=23))
    assert not storage.opens(path, **query, now=NOW + timedelta(days=30))


def test_a_link_opens_its_own_file_and_no_other_and_cannot_be_stretched(storage):
    path, query = parts(storage.link("labels/PR-1.pdf", now=NOW, lasts=timedelta(days=1)))
    later = {**query, "expires": str(int(query["expires"]) + 1)}
    assert not storage.opens("labels/PR-2.pdf", **query, now=NOW)
    assert not storage.opens(path, **later, now=NOW)
    for signature in ("", "0" * 64, query["signature"][:-1], query["signature"].upper() + "x"):
        assert not storage.opens(path, expires=query["expires"], signature=signature, now=NOW)
    for expires in ("", "-1", "1e9", "9" * 13, "０"):
        assert not storage.opens(path, expires=expires, signature=query["signature"], now=NOW)


def test_links_of_yesterdays_secret_open_as_long_as_it_is_listed(storage):
    before = Storage(storage.url, storage.base_url, [OLD])
    path, query = parts(before.link("labels/PR-1.pdf", now=NOW, lasts=timedelta(days=1)))
    both = Storage(storage.url, storage.base_url, [NEW, OLD])
    assert both.opens(path, **query, now=NOW)
    assert not storage.opens(path, **query, now=NOW)


@pytest.mark.parametrize(
    "path", ["../a", "/etc/passwd", "a/../b", "a//b", "", ".hidden", "a/.b", "a\x00b", "a b", "a?b", "ä"]
)
def test_no_path_leads_out_of_the_bucket(storage, path):
    with pytest.raises(ValueError, match="plain names"):
        asyncio.run(storage.get(path))
    assert not storage.opens(path, expires="99999999999", signature="x", now=NOW)


def test_a_secret_that_reaches_a_log_does_not_show_itself(storage):
    assert NEW.decode() not in repr(storage)


def test_the_path_is_found_again_from_address_and_link(storage):
    link = storage.link("labels/PR-1.pdf", now=NOW, lasts=timedelta(days=1))
    assert storage.path_of(link) == storage.path_of(storage.address("labels/PR-1.pdf")) == "labels/PR-1.pdf"
    with pytest.raises(ValueError, match="not one of this storage"):
        storage.path_of("https://elsewhere.example/labels/PR-1.pdf")
    assert storage.is_public("open/a.png")
    assert not storage.is_public("labels/a.png")
