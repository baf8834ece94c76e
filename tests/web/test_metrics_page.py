"""`/metrics` of the pages: what `onceward metrics` prints, for those who may."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

ELSEWHERE = {"x-forwarded-for": "203.0.113.7"}


def test_the_machine_itself_reads_the_gauges_of_the_database(site, db):
    db.enqueue()
    answer = httpx.get(f"{site.address}/metrics")

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    found = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert {s.labels["state"]: s.value for s in found["onceward_jobs"].samples}["ready"] == 1


def test_from_elsewhere_it_takes_a_token_that_reads_and_is_bound_to_nobody(site, db):
    def status(**headers: str) -> int:
        return httpx.get(f"{site.address}/metrics", headers={**ELSEWHERE, **headers}).status_code

    assert status() == 401
    assert status(authorization="Bearer owt_wrong") == 401
    assert status(authorization=f"Bearer {site.token('read')}") == 200
    assert status(authorization=f"Bearer {site.token('operate')}") == 200
    assert status(authorization=f"Bearer {site.token('enqueue')}") == 403
    assert status(authorization=f"Bearer {site.token('read', tenant='acme')}") == 403


def test_a_person_who_sees_every_tenant_reads_them(site):
    for tenant, status in ((None, 200), ("acme", 401)):
        visitor = site.signed_in(f"of-{tenant}", "viewer", tenant)
        assert visitor.http.get("/metrics", headers=ELSEWHERE).status_code == status


def test_the_database_is_not_asked_by_every_scrape(site, db):
    first = httpx.get(f"{site.address}/metrics").text
    db.enqueue()

    assert httpx.get(f"{site.address}/metrics").text == first
