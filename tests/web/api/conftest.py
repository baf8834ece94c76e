"""The API on a real server, and programs with tokens."""

from __future__ import annotations

import httpx
import pytest

from onceward.web import ApiSettings


class Program:
    """A program with a token."""

    def __init__(self, site, token: str | None, **headers: str) -> None:
        self.site = site
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self.http = httpx.Client(base_url=f"{site.address}/api/v1", headers=headers, timeout=30, verify=False)

    def get(self, path: str, status: int = 200, **params):
        return self.ask("GET", path, status, params=params).json()

    def post(self, path: str, body=None, status: int | None = None, *, key: str | None = None):
        return self.ask("POST", path, status, json={} if body is None else body, key=key).json()

    def put(self, path: str, body, status: int = 200):
        return self.ask("PUT", path, status, json=body).json()

    def ask(self, method: str, path: str, status: int | None = None, *, key: str | None = None, **more):
        headers = {"Content-Type": "application/json"} if "content" in more else {}
        headers |= {"Idempotency-Key": key} if key else {}
        answer = self.http.request(method, path, headers=headers, **more)
        wanted = {status} if status else {200, 201}
        assert answer.status_code in wanted, f"{method} {path}: {answer.status_code}\n{answer.text[:3000]}"
        return answer


@pytest.fixture
def serve_api(serve):
    """Serve with these bounds."""
    none = {"rate": 1e6, "burst": 1e6, "guesses": 1e6}
    return lambda app=None, **bounds: serve(apps=[app] if app else (), api=ApiSettings(**{**none, **bounds}))


@pytest.fixture
def api(serve_api):
    return serve_api()


@pytest.fixture
def program(api):
    """A program with these scopes."""
    programs = []

    def make(*scopes: str, tenant: str | None = None, site=None) -> Program:
        chosen = site or api
        programs.append(Program(chosen, chosen.token(*scopes, tenant=tenant)))
        return programs[-1]

    yield make
    for made in programs:
        made.http.close()


@pytest.fixture
def everything(program) -> Program:
    return program("read", "enqueue", "operate")
