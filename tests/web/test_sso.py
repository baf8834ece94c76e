"""Single sign-on: tokens that hold, and all that do not, against a key server of our own."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from onceward.errors import InvalidArgument
from onceward.web import Sso

ISSUER, AUDIENCE, HEADER = "https://team.example", "pages", "Cf-Access-Jwt-Assertion"


class KeyServer:
    """Serves the public halves of the keys that it has."""

    def __init__(self) -> None:
        self.keys: dict[str, rsa.RSAPrivateKey] = {}
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                body = json.dumps({"keys": [outer.public(name) for name in outer.keys]}).encode()
                self.send_response(200 if outer.keys else 500)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *unused: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def add(self, name: str) -> None:
        self.keys[name] = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def public(self, name: str) -> dict[str, str]:
        written = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.keys[name].public_key()))
        return {**written, "kid": name, "alg": "RS256", "use": "sig"}

    def token(
        self, key: str = "one", algorithm: str = "RS256", secret: object = None, **claims: object
    ) -> str:
        whole = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": time.time() + 300,
            "email": "ana@example.com",
            **claims,
        }
        whole = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(whole, secret or self.keys[key], algorithm=algorithm, headers={"kid": key})

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def provider():
    server = KeyServer()
    server.add("one")
    yield server
    server.close()


@pytest.fixture
def site(serve, provider, db):
    db.run("select onceward.add_operator('ana@example.com', 'operator')")
    return serve(sso=Sso(issuer=ISSUER, audience=AUDIENCE, keys_url=provider.url))


def ask(site, token: str | None, path: str = "/jobs"):
    headers = {"host": "jobs.example", **({HEADER: token} if token else {})}
    return site.visitor(**headers).http.get(path)


def test_a_token_that_holds_lets_its_operator_in(site, provider):
    answer = ask(site, provider.token())

    assert answer.status_code == 200
    assert "ana@example.com" in answer.text


def test_keys_are_fetched_once_for_many_requests(site, provider):
    for _ in range(5):
        assert ask(site, provider.token()).status_code == 200
    assert provider.asked == 1


def test_without_a_token_nobody_reads_not_even_from_this_machine(site):
    assert site.visitor().http.get("/jobs").status_code == 303


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another"}, {"iss": "https://evil.example"}, {"exp": 1}, {"exp": None}, {"aud": None}, {"iss": None},
        {"email": None}, {"email": ""}, {"email": ["ana@example.com"]}, {"nbf": 4_000_000_000},
    ],
)  # fmt: skip
def test_a_token_with_a_wrong_or_missing_claim_is_refused(site, provider, claims):
    assert ask(site, provider.token(**claims)).status_code == 401


def test_forged_tokens_are_refused(site, provider):
    stranger = KeyServer()
    stranger.add("one")
    public = (
        provider.keys["one"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    body = provider.token().rpartition(".")[0]
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 300, "email": "ana@example.com"}
    forged = [
        stranger.token(),
        jwt.encode(claims, None, algorithm="none", headers={"kid": "one"}),
        # The public key as the secret of a symmetric algorithm.
        _hs256(claims, public),
        body + ".",
        body + ".AAAA",
        "x",
        "a.b.c",
        jwt.encode(claims, provider.keys["one"], algorithm="RS512", headers={"kid": "one"}),
        jwt.encode(claims, provider.keys["one"], algorithm="RS256", headers={"kid": "unknown"}),
        jwt.encode(claims, provider.keys["one"], algorithm="RS256"),
    ]
    stranger.close()

    assert {ask(site, token).status_code for token in forged} == {401}


def _hs256(claims: dict[str, object], key: bytes) -> str:
    import base64
    import hashlib
    import hmac

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    text = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'one'})}.{part(claims)}"
    mac = hmac.new(key, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def test_somebody_whom_the_provider_knows_and_we_do_not_is_told_so(site, provider):
    answer = ask(site, provider.token(email="eve@example.com"))

    assert answer.status_code == 403
    assert "no operator here" in answer.text


def test_who_comes_by_single_sign_on_posts_with_a_token_of_our_own_forms(site, provider, db):
    visitor = site.visitor(host="jobs.example", **{HEADER: provider.token()})

    assert visitor.http.post("/lanes/default/pause").status_code == 403
    visitor.post("/lanes/default/pause")
    assert db.value("select paused_by from onceward.lanes where name = 'default'") == "ana@example.com"


def test_while_keys_cannot_be_fetched_nobody_is_let_in(site, provider):
    token = provider.token()
    provider.keys = {}

    assert ask(site, token).status_code == 503


@pytest.mark.parametrize("algorithm", ["HS256", "none", "rs256"])
def test_an_algorithm_by_which_anybody_could_sign_is_refused_at_the_start(serve, algorithm):
    with pytest.raises(InvalidArgument, match="algorithm of single sign-on"):
        serve(sso=Sso(issuer=ISSUER, audience=AUDIENCE, keys_url="http://127.0.0.1:1", algorithm=algorithm))


def test_settings_in_part_are_refused():
    assert Sso.from_environment({}) is None
    with pytest.raises(InvalidArgument, match="ONCEWARD_SSO_AUDIENCE"):
        Sso.from_environment({"ONCEWARD_SSO_ISSUER": ISSUER, "ONCEWARD_SSO_KEYS_URL": "https://x.example"})
