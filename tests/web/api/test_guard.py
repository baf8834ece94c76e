"""Who may ask what, how often, how much and how slowly."""

from __future__ import annotations

import json
import socket

import httpx
import pytest
import structlog

from onceward.errors import InvalidArgument
from onceward.web import ApiSettings
from onceward.web.api import guard
from onceward.web.api.build import PREFIX, described, description
from onceward.web.api.rates import MOST, Rates

OPERATIONS = [
    (method.upper(), PREFIX + path, operation["security"][0]["token"][0])
    for path, operations in description(described())["paths"].items()
    for method, operation in operations.items()
]
EXAMPLES = {
    "id": "01936f00-0000-7000-8000-000000000000",
    "hold_id": "01936f00-0000-7000-8000-000000000000",
    "seq": "1",
}


def address_of(path: str) -> str:
    for name, value in EXAMPLES.items():
        path = path.replace("{" + name + "}", value)
    return path.replace("{name}", "n").replace("{lane}", "default")


def test_no_operation_answers_a_stranger(serve_api, db):
    api = serve_api()
    revoked = api.token("read", "enqueue", "operate")
    db.run("select onceward.revoke_token(id) from onceward.tokens()")
    over = api.token("read")
    db.run(
        "update onceward.token_private set expires_at = onceward.now() - interval '1 second' where revoked_at is null"
    )
    headers = [
        {},
        {"Authorization": "Bearer owt_forged"},
        {"Authorization": f"Bearer {revoked}"},
        {"Authorization": f"Bearer {over}"},
        {"Authorization": f"Basic {revoked}"},
        {"Authorization": "Bearer"},
        {"Cookie": f"onceward-{api.port}={revoked}"},
    ]
    with httpx.Client(base_url=api.address, timeout=30) as http:
        for number, (method, path, _) in enumerate(OPERATIONS):
            answer = http.request(method, address_of(path), headers=headers[number % len(headers)], json={})
            assert answer.status_code == 401, f"{method} {path}: {answer.status_code}"
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_whoever_guesses_is_slowed_down_and_whoever_is_known_is_not(serve_api, program):
    known = program("read", site=serve_api(guesses=0.05))
    known.get("/lanes")
    with httpx.Client(base_url=known.http.base_url, timeout=30) as guessing:
        first, second = (
            guessing.get("/lanes", headers={"Authorization": "Bearer owt_guess"}) for _ in range(2)
        )
    assert (first.status_code, second.status_code) == (401, 429)
    assert int(second.headers["retry-after"]) >= 1
    known.get("/lanes")


@pytest.mark.parametrize("scopes", [("read",), ("enqueue",), ("operate",)])
def test_a_token_does_what_its_scopes_say_and_no_more(program, scopes):
    asking = program(*scopes)
    for method, path, needed in OPERATIONS:
        if path.endswith("/wait"):
            continue
        answer = asking.http.request(
            method, f"{asking.site.address}{address_of(path)}", json={} if method != "GET" else None
        )
        allowed = needed in scopes or (needed == "read" and "operate" in scopes)
        if allowed:
            assert answer.status_code != 403, f"{method} {path}: {answer.text}"
        elif answer.status_code != 422:
            # FastAPI looks at a body before it looks at a scope; nothing was done either way.
            assert answer.status_code == 403, f"{method} {path}: {answer.status_code}"
            assert answer.json()["code"] == "missing-scope"


def test_nobody_reads_or_touches_what_is_another_tenants(db, program):
    acme, globex = (program("read", "enqueue", "operate", tenant=name) for name in ("acme", "globex"))
    job = acme.post("/jobs", {"task": "t", "payload": {"secret": "canary"}, "key": "k", "delay": 60}, 201)[
        "id"
    ]
    acme.put("/schedules/nightly", {"task": "t", "spec": "0 3 * * *"})
    assert globex.get("/jobs") == {"jobs": [], "next": None}
    assert globex.get("/jobs", tenant="acme") == {"jobs": [], "next": None}
    assert globex.get("/schedules")["schedules"] == []
    assert globex.get(f"/jobs/{job}/audit")["entries"] == []
    assert globex.get("/audit", tenant="acme")["entries"] == []
    for method, path, body in (
        ("GET", f"/jobs/{job}", None),
        ("GET", f"/jobs/{job}/wait?timeout=0", None),
        ("POST", f"/jobs/{job}/cancel", {}),
        ("POST", f"/jobs/{job}/run-now", None),
        ("POST", f"/jobs/{job}/requeue", {}),
        ("POST", f"/jobs/{job}/resolve", {"note": "mine"}),
        ("POST", "/schedules/nightly/pause", {}),
        ("POST", "/schedules/nightly/run", {}),
        ("DELETE", "/schedules/nightly", None),
    ):
        answer = globex.ask(method, path, 404, json=body)
        assert "canary" not in answer.text
        assert "acme" not in answer.text
    assert db.state(job) == "scheduled"
    for path, body in (("/jobs", {"task": "t"}), ("/events", {"name": "paid"})):
        refused = globex.post(path, {**body, "tenant": "acme"}, 403)
        assert refused["errors"][0]["field"] == "tenant"
    assert db.value("select count(*) from onceward.jobs") == 1


def test_what_all_tenants_share_is_not_changed_by_one_of_them(db, program):
    bound, free = program("operate", tenant="acme"), program("operate")
    assert bound.post("/lanes/default/pause", status=403)["code"] == "shared"
    assert bound.ask("PUT", "/limits/openai", 403, json={"requests": 1}).json()["code"] == "shared"
    assert free.post("/lanes/default/pause", {"reason": "deploy"}) == {"changed": True}
    assert free.post("/lanes/default/pause") == {"changed": False}
    assert db.one("select paused_by, pause_reason from onceward.lanes where name = 'default'") == (
        "token ci",
        "deploy",
    )


def test_a_token_asks_as_often_as_it_may(serve_api, program):
    asking = program("read", site=serve_api(rate=0.001, burst=3))
    statuses = [asking.http.get("/lanes").status_code for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    refused = asking.ask("GET", "/lanes", 429)
    assert int(refused.headers["retry-after"]) > 1
    assert refused.json()["code"] == "too-many-requests"
    assert program("read", site=asking.site).http.get("/lanes").status_code == 200, (
        "another token waits for it"
    )


def test_a_bucket_fills_again_and_is_forgotten():
    now = 0.0
    rates = Rates(2, 4, clock=lambda: now)
    assert [rates.take("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    now = 0.5
    assert (rates.wait("a"), rates.take("a"), rates.take("a")) == (0, 0, 0.5)
    for number in range(MOST + 10):
        rates.take(number)
    assert len(rates._left) <= MOST


def test_a_request_that_is_too_large_is_refused_before_it_is_read(serve_api, program):
    asking = program("enqueue", site=serve_api(body_bytes=1000))
    assert asking.post("/jobs", {"task": "t", "payload": {"x": "y" * 2000}}, 413)["code"] == "too-large"
    # Without a length, in pieces.
    answer = asking.http.post(
        "/jobs", content=iter([b"[" * 600] * 3), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413


def test_a_request_that_does_not_arrive_is_given_up(serve_api, db):
    api = serve_api(body_seconds=0.2)
    token = api.token("enqueue")
    with socket.create_connection(("localhost", api.port), timeout=20) as slow:
        slow.sendall(
            f"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{".encode()
        )
        answer = b"".join(iter(lambda: slow.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"too-slow" in answer


def test_scripts_of_listed_origins_may_ask(serve_api, program):
    asking = program("read", site=serve_api(origins=["https://shop.example"]))
    ours, others = {"Origin": "https://shop.example"}, {"Origin": "https://evil.example"}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with httpx.Client(base_url=asking.http.base_url) as stranger:
        allowed = stranger.options("/jobs", headers=ours | asked)
        assert allowed.headers["access-control-allow-origin"] == "https://shop.example"
        assert "idempotency-key" in allowed.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in allowed.headers
        assert "access-control-allow-origin" not in stranger.options("/jobs", headers=others | asked).headers
    answer = asking.http.get("/lanes", headers=ours)
    assert answer.headers["access-control-allow-origin"] == "https://shop.example"
    assert "Origin" in answer.headers["vary"]
    assert "access-control-allow-origin" not in asking.http.get("/lanes", headers=others).headers


@pytest.mark.parametrize("origin", ["*", "https://shop.example/", "shop.example", "null"])
def test_an_origin_is_exact(origin):
    with pytest.raises(InvalidArgument, match="origin"):
        ApiSettings(origins=[origin])


def test_the_bounds_come_from_the_environment():
    read = ApiSettings.from_environment(
        {
            "ONCEWARD_API_ORIGINS": "https://a.example, https://b.example",
            "ONCEWARD_API_RATE": "5",
            "ONCEWARD_API_BODY_BYTES": "9",
        }
    )
    assert (read.origins, read.rate, read.burst, read.body_bytes) == (
        ("https://a.example", "https://b.example"),
        5,
        10,
        9,
    )
    with pytest.raises(InvalidArgument, match="ONCEWARD_API_RATE"):
        ApiSettings.from_environment({"ONCEWARD_API_RATE": "many"})


def test_every_answer_has_the_number_of_its_request_and_no_secret_is_logged(everything, capfd, monkeypatch):
    # Whatever else this process has configured: here everything is written.
    said = structlog.testing.LogCapture()
    monkeypatch.setattr(
        guard,
        "log",
        structlog.wrap_logger(
            None, processors=[said], wrapper_class=structlog.make_filtering_bound_logger(0)
        ),
    )
    given = everything.http.get("/lanes", headers={"X-Request-Id": "trace-7"})
    assert given.headers["x-request-id"] == "trace-7"
    forged = everything.http.get("/lanes", headers={"X-Request-Id": "a b\tc"})
    assert forged.headers["x-request-id"] != "a b\tc"
    problem = everything.http.post("/jobs", json={"task": "t", "payload": {"x": "canary-1"}, "key": 5})
    assert problem.json()["request_id"] == problem.headers["x-request-id"]
    everything.http.get("/jobs", params={"key": "canary-2"})
    out = str(said.entries) + "".join(capfd.readouterr())
    assert "trace-7" in out
    for secret in ("canary-1", "canary-2", everything.http.headers["authorization"].removeprefix("Bearer ")):
        assert secret not in out
    assert "canary-1" not in problem.text


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b"[" * 100_000, b'{"task": "t", "payload": {"n": ' + b"9" * 5000 + b"}}", b"null", b"NaN",
     b'{"task": "\\ud800"}', b'{"task": "t", "payload": {"\\ud800": 1}}', b'{"task": "t", "payload": {"x": NaN}}',
     b'{"task": "t", "payload": {"x": 1e999}}', b'{"task": "t", "payload": ' + b'{"a":' * 900 + b"1" + b"}" * 901],
)  # fmt: skip
def test_what_is_no_request_is_refused_with_a_reason(db, everything, body):
    answer = everything.http.post("/jobs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in {400, 422}, answer.text
    assert answer.json()["title"]
    assert db.value("select count(*) from onceward.jobs") == 0


def test_a_body_of_another_kind_is_refused(everything):
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = everything.http.post("/jobs", content=b'{"task": "t"}', headers={"content-type": kind})
        assert (answer.status_code, answer.json()["code"]) == (422, "not-json")


def test_addresses_and_methods_that_there_are_not_are_problems(everything):
    assert everything.get("/nothing", 404)["code"] == "no-such-address"
    assert everything.get("/nothing%0A/here", 404)["code"] == "no-such-address"
    assert everything.post("/lanes/%0A/pause", {}, 422)["code"] == "invalid-request"
    assert everything.post("/lanes/x%0A/pause", {}, 422)["code"] == "invalid-request"
    answer = everything.ask("PATCH", "/jobs", 405)
    assert answer.headers["allow"] == "GET, POST"
    unknown = everything.get("/jobs", 422, stat="ready")
    assert "lane" in unknown["errors"][0]["hint"]
    everything.get("/jobs/not-an-id", 422)
    assert everything.http.get("/jobs/%00").status_code == 422


def test_the_description_is_for_everybody_and_complete(api):
    with httpx.Client(timeout=60) as stranger:
        read = stranger.get(f"{api.address}/api/v1/openapi.json").json()
    assert read["openapi"] == "3.1.0"
    assert json.dumps(read).count("HTTPValidationError") == 0
    for path, operations in read["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            assert operation["description"], where
            assert operation["security"], where
            for status, response in operation["responses"].items():
                if status[0] in "45":
                    assert response == {"$ref": f"#/components/responses/problem{status}"}, (
                        f"{where} {status}"
                    )
                else:
                    wanted = set() if status == "204" else {"application/json"}
                    assert set(response.get("content", {})) == wanted, f"{where} {status}"
    for name, shared in read["components"]["responses"].items():
        assert set(shared["content"]) == {"application/problem+json"}, name
