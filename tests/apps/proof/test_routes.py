"""What the routes answer."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from onceward_apps.proof.routes import Routes

SECRET = "a worker secret that only tests know"


@pytest.fixture
def routes(proof):
    return Routes(proof.app, dataclasses.replace(proof.settings, worker_secret=SECRET))


def run(coroutine):
    answer = asyncio.run(coroutine)
    return answer.status, answer.body


def test_a_batch_is_created_by_the_route(proof, routes):
    status, body = run(routes.create_batch({"production_date": "2026-03-20", "kg_produced": "512.5"}))
    assert (status, body["batch_code"]) == (201, "PR-260320-001")
    assert proof.batch(body).kg_produced == 512.5


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (None, "body: "),
        ({}, "production_date: Field required"),
        ({"production_date": "soon", "kg_produced": 1}, "production_date: "),
        ({"production_date": "2026-03-20", "kg_produced": 0}, "kg_produced: Input should be greater than 0"),
        ({"production_date": "2026-03-20", "kg_produced": "NaN"}, "kg_produced: "),
        ({"production_date": "2026-03-20", "kg_produced": 1, "status": "RELEASED"}, "status: Extra inputs"),
        (
            {"production_date": "2020-03-20", "kg_produced": 1},
            "No active formulation found for date 2020-03-20",
        ),
    ],
)
def test_a_request_that_makes_no_batch_says_why(routes, body, error):
    status, answer = run(routes.create_batch(body))
    assert (status, answer["success"]) == (422, False)
    assert answer["error"].startswith(error)


@pytest.mark.slow
def test_an_outside_cron_drives_the_pipeline(proof, routes):
    # No schedule comes due meanwhile, whose jobs would count.
    proof.clock.pin()
    proof.create()
    assert run(routes.process_proof_jobs(SECRET)) == (200, {"success": True, "executed": 3})
    assert (proof.job().state, len(proof.mail.kept)) == ("done", 1)
    # Twice at once is as good as once.
    proof.create()

    async def both():
        return await asyncio.gather(routes.process_proof_jobs(SECRET), routes.process_proof_jobs(SECRET))

    asyncio.run(both())
    assert len(proof.mail.kept) == 2


@pytest.mark.parametrize("secret", [None, "", "wrong", SECRET + "x", SECRET[:-1], "é"])
def test_without_the_secret_nothing_runs__trap_p16(proof, routes, secret):
    proof.create()
    assert run(routes.process_proof_jobs(secret)) == (401, {"error": "Unauthorized"})
    assert run(routes.run_monitor(secret, {"check": "proof_system_health"}))[0] == 401
    assert proof.job().state == "queued"
    assert proof.one("select count(*) from raw_ops.monitoring_runs") == 0


@pytest.mark.parametrize("secret", [None, "", "anything"])
def test_without_a_secret_in_the_settings_nobody_is_let_in__trap_p16(proof, secret):
    assert run(Routes(proof.app, proof.settings).process_proof_jobs(secret))[0] == 401


def test_the_monitor_runs_by_its_name__trap_p16(proof, routes):
    status, body = run(routes.run_monitor(SECRET, {"check": "proof_system_health"}))
    assert (status, body["alert_config"]) == (200, None)
    for unknown in ({"check": "pg_sleep"}, {}, None, "x"):
        assert run(routes.run_monitor(SECRET, unknown))[0] == 404


def test_the_public_routes(proof, routes):
    assert run(routes.latest()) == (302, {"location": "/batch/sample"})
    batch = proof.create()
    assert run(routes.page(batch["public_batch_id"]))[1]["status"] == "QA_HOLD"
    proof.record(batch)
    proof.release(batch)
    public = batch["public_batch_id"]
    assert run(routes.latest()) == (302, {"location": f"/batch/{public}"})
    assert run(routes.page(public))[0] == 200
    assert run(routes.page("PR-00000000"))[0] == 404
    assert run(routes.search(batch["batch_code"]))[1]["public_batch_id"] == public


def test_events_by_the_route_are_checked_and_keep_no_address(proof, routes):
    proof.clock.pin()

    def event(body, address="192.0.2.7"):
        return run(routes.event(body, address=address, agent="Phone"))[0]

    assert event({"event": "page_view"}) == 202
    assert event({"event": "hack"}) == 422
    assert event({"event": "page_view", "meta": {"a": {"b": 1}}}) == 422
    assert event({"event": "page_view", "more": 1}) == 422
    assert [event({"event": "page_view"}) for _ in range(30)][-1] == 429
    assert event({"event": "page_view"}, "192.0.2.8") == 202
    everything = str(proof.all("select to_jsonb(e)::text from raw_ops.proof_page_events as e")) + str(
        proof.all("select bucket from raw_ops.proof_event_counters")
    )
    assert "192.0.2" not in everything
    assert "Phone" not in everything


@pytest.mark.parametrize(
    "path", ["../proof-link-secret", "qr-codes/../batch-labels/x.pdf", "qr-codes/none.png", "qr-codes/"]
)
def test_no_path_of_the_public_folder_leads_elsewhere(routes, path):
    assert asyncio.run(routes.asset(path)).status in {403, 404}
