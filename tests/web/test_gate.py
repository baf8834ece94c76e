"""Who gets in, who may change something, and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from onceward.web import bulk, secrets


def test_without_operators_this_machine_reads_and_changes_nothing(site, db):
    job = db.enqueue()
    visitor = site.visitor()

    assert str(job) in visitor.get("/jobs")
    answer = visitor.http.post("/lanes/default/pause")
    assert answer.status_code == 403
    assert "Sign in to change anything" in answer.text


@pytest.mark.parametrize(
    "header",
    [
        {"host": "evil.example"},
        {"x-forwarded-for": "127.0.0.1"},
        {"cf-ray": "1"},
        {"forwarded": "for=127.0.0.1"},
    ],
)
def test_a_request_that_was_passed_on_or_meant_for_another_name_is_not_local(site, header):
    """A proxy, or a name that another site controls, must not make a stranger a reader."""
    answer = site.visitor(**header).http.get("/jobs")

    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/sign-in?next=%2Fjobs")


def test_once_somebody_can_sign_in_everybody_has_to(site, db):
    site.link()

    assert site.visitor().http.get("/").status_code == 303


def test_the_demo_lets_this_machine_read_though_somebody_can_sign_in(serve):
    site = serve(local_reading=True)
    site.link()

    site.visitor().get("/")


def test_opening_a_link_changes_nothing_and_pressing_its_button_signs_in(site):
    link = site.link("ana", "operator")
    visitor = site.visitor()

    for _ in range(2):
        assert "Sign in as ana" in visitor.get(link)
    answer = visitor.http.post("/sign-in", data={"link": link, "next": "/lanes"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/lanes")
    cookie = answer.headers["set-cookie"] + "".join(answer.headers.get_list("set-cookie"))
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Lane" in visitor.get("/lanes")


def test_a_link_signs_in_once_also_when_many_press_at_the_same_moment(site):
    link = site.link()

    def press(_):
        return site.visitor().http.post("/sign-in", data={"link": link}).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(press, range(8)))

    assert sorted(answers) == [303] + [403] * 7


def test_a_link_does_not_work_when_its_time_is_over_or_its_operator_is_disabled(site, db):
    late, gone = site.link("ana"), site.link("ben")
    db.run("select onceward.disable_operator('ben')")
    db.clock.advance("16 min")

    for link in (late, gone):
        answer = site.visitor().http.post("/sign-in", data={"link": link})
        assert answer.status_code == 403
        assert "used before" in answer.text


def test_a_session_ends_by_signing_out_by_time_and_with_its_operator(site, db):
    one, two, three = site.signed_in("ana"), site.signed_in("ben"), site.signed_in("eve")

    two.post("/sign-out")
    db.run("select onceward.disable_operator('eve')")
    assert [visitor.http.get("/").status_code for visitor in (one, two, three)] == [200, 303, 303]
    db.clock.advance("12 h 1 min")
    assert one.http.get("/").status_code == 303


def test_nobody_signs_in_over_plain_http_from_elsewhere(site):
    link = site.link()
    answer = site.visitor(host="jobs.example").http.post("/sign-in", data={"link": link})

    assert answer.status_code == 403
    assert "needs https" in answer.text


def test_behind_a_proxy_with_https_the_cookie_is_bound_to_the_host(db, monkeypatch):
    from onceward.web import WebSettings
    from onceward.web import server as server_module
    from tests.web.conftest import Site

    made = server_module.make_server
    monkeypatch.setattr(
        "tests.web.conftest.make_server",
        lambda settings, **options: made(settings, proxies="127.0.0.1", **options),
    )
    site = Site(db, WebSettings(dsn=db.dsn))
    try:
        visitor = site.visitor(
            **{"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9", "host": "jobs.example"}
        )
        answer = visitor.http.post("/sign-in", data={"link": site.link()})
        cookies = answer.headers.get_list("set-cookie")
    finally:
        site.close()

    session = next(cookie for cookie in cookies if cookie.startswith("__Host-onceward="))
    assert "Secure" in session
    assert "Path=/" in session
    assert "Domain" not in session
    assert answer.headers["strict-transport-security"]


@pytest.mark.parametrize("sent", [{}, {"csrf": ""}, {"csrf": "0" * 64}])
def test_a_post_without_our_token_is_refused(ana, db, sent):
    answer = ana.http.post("/lanes/default/pause", data=sent)

    assert answer.status_code == 403
    assert not db.value("select paused from onceward.lanes where name = 'default'")


def test_the_token_of_one_session_does_not_open_another(site):
    ana, ben = site.signed_in("ana"), site.signed_in("ben")

    assert ana.http.post("/lanes/default/pause", data={"csrf": ben.csrf}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"origin": "http://evil.example"}],
)
def test_a_post_that_another_site_made_a_browser_send_is_refused(ana, headers):
    answer = ana.http.post("/lanes/default/pause", data={"csrf": ana.csrf}, headers=headers)

    assert answer.status_code == 403


def test_a_viewer_reads_and_changes_nothing(site, db):
    job = db.dead_letter()
    viewer = site.signed_in("vic", "viewer")

    assert f"/jobs/{job}/requeue" not in viewer.get(f"/jobs/{job}")
    viewer.post(f"/jobs/{job}/requeue", 403)
    assert db.state(job) == "dead_letter"


def test_an_operator_of_one_tenant_sees_and_touches_nothing_of_another(site, db):
    own = db.dead_letter(tenant="acme", payload={"secret": "mine"})
    other = db.dead_letter(tenant="globex", task="hidden_task", payload={"secret": "theirs"})
    site.db.call("add_schedule", name="theirs", task="hidden_task", spec="1 hour", tenant="globex")
    operator = site.signed_in("ana", "admin", "acme")

    for path in ("/", "/jobs", "/dead-letters", "/schedules", "/deliveries", "/workers", "/jobs.csv"):
        text = operator.get(path)
        assert str(other) not in text
        assert "hidden_task" not in text
    assert str(own) in operator.get("/jobs")
    operator.get(f"/jobs/{other}", 404)
    operator.get(f"/schedules/{db.value('select id from onceward.schedules')}", 404)
    operator.get(f"/jobs?tenant=globex&task=hidden_task")  # noqa: F541 - an address like the others
    operator.post(f"/jobs/{other}/requeue", 404)
    operator.post("/dead-letters/requeue?task=hidden_task&tenant=globex", ids=bulk.packed([other]))
    assert "1 had changed meanwhile" in operator.get("/dead-letters")
    operator.post("/lanes/default/pause", 403)
    operator.get("/doctor", 403)
    assert db.state(other) == "dead_letter"
    operator.post(f"/jobs/{own}/requeue")
    assert db.state(own) == "ready"


def test_a_token_reads_by_its_scope_and_is_refused_when_it_is_revoked(site, db):
    db.enqueue(tenant="acme")
    db.enqueue(tenant="globex")
    token = site.token("read", tenant="acme")
    program = site.visitor(authorization=f"Bearer {token}", host="jobs.example")

    assert program.get("/jobs.csv").count("\n") == 2
    assert program.http.post("/lanes/default/pause").status_code == 403
    db.run("select onceward.revoke_token(id) from onceward.tokens()")
    assert program.http.get("/jobs.csv").status_code == 401


def test_a_token_that_operates_needs_no_form(site, db):
    program = site.visitor(authorization=f"Bearer {site.token('operate')}")

    assert program.http.post("/lanes/default/pause").status_code == 303
    assert db.value("select paused_by from onceward.lanes where name = 'default'") == "token ci"


def test_records_name_the_person_who_acted(ana, db):
    job = db.dead_letter()
    ana.post(f"/jobs/{job}/resolve", note="paid by hand")

    assert "by ana" in db.job(job).note


def test_secrets_are_nowhere_in_the_database(site, db):
    link, token = site.link(), site.token("read")
    visitor = site.visitor()
    visitor.http.post("/sign-in", data={"link": link})
    session = visitor.http.cookies[f"onceward-{site.port}"]

    stored = "".join(
        db.value(f"select coalesce(string_agg(t::text, ''), '') from onceward.{table} as t")
        for table in ("link_private", "session_private", "token_private", "operator_private")
    )
    for secret in (link.partition("link=")[2], token, session):
        assert secret not in stored
        assert secrets.digest(secret).hex() in stored


@pytest.mark.parametrize(
    "path", ["//evil.example", "/\\evil.example", "https://evil.example", "/sign-in", "x"]
)
def test_signing_in_leads_to_our_own_pages_only(site, path):
    answer = site.visitor().http.post("/sign-in", data={"link": site.link(), "next": path})

    assert answer.headers["location"] == "/"


def test_every_answer_has_the_headers_that_keep_others_out(ana):
    for path in ("/", "/nothing", "/static/console.css", "/healthz", "/sign-in"):
        headers = ana.http.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


def test_a_form_that_is_too_large_is_refused(ana):
    answer = ana.http.post("/lanes/default/pause", data={"csrf": "x", "reason": "y" * 1_100_000})

    assert answer.status_code == 413


def test_health_is_answered_to_anybody_and_tells_nothing(site):
    site.link()
    stranger = site.visitor(host="jobs.example").http

    assert stranger.get("/healthz").json() == {"status": "alive"}
    assert stranger.get("/readyz").json() == {"status": "ready"}


def test_a_database_that_is_gone_is_told_without_details(site, db, onceward_server):
    visitor = site.visitor()
    db.run(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'onceward web%%'"
    )
    # Connections that broke are replaced.
    visitor.get("/jobs")
