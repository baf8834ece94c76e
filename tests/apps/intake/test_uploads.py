"""The upload: it succeeds, or says why not; a file is never lost, and never somebody else's."""

from __future__ import annotations

import json
import socket
import threading
from base64 import urlsafe_b64encode
from datetime import timedelta
from uuid import UUID, uuid4

import jwt
import pytest

from tests.apps.intake.stage import AUDIT, SECRET, UPLOAD, png

MEGABYTE = 1024 * 1024


def code(answer) -> tuple[int, str]:
    body = answer.json()
    assert body["success"] is False
    assert UUID(body["correlation_id"])
    return answer.status_code, body["error"]["code"]


# ------------------------------------------------------------ what is taken


@pytest.mark.parametrize(
    ("head", "name", "mime"),
    [
        (b"%PDF-1.7\n", "a.pdf", "application/pdf"),
        (b"\xff\xd8\xff\xe0", "IMG_0001.JPG", "image/jpeg"),
        (b"\x89PNG\r\n\x1a\n", "a.png", "image/png"),
        (b"II*\0", "a.tiff", "image/tiff"),
        (b"\0\0\0\x18ftypheic", "photo.heic", "image/heic"),
    ],
)
def test_the_five_types_are_taken_by_contents_and_name_together(intake, door, head, name, mime):
    answer = door.upload(head + b"0" * 60, filename=name)
    assert answer.status_code == 201
    file = intake.file(UUID(answer.json()["shell_file_id"]))
    assert (file["mime_type"], file["file_size_bytes"], file["filename"]) == (mime, len(head) + 60, name)


def test_the_object_lies_in_the_folder_of_the_profile_under_a_name_that_tells_nothing(intake, door):
    said = door.upload(png(), filename="HIV result Maya Thompson.png").json()
    assert intake.objects() == [f"{intake.profile}/{said['shell_file_id']}.png"]


def test_a_form_works_like_a_raw_body(intake, door):
    headers = {"authorization": f"Bearer {intake.token()}"}
    answer = door.http.post(
        UPLOAD,
        data={"profile_id": str(intake.profile), "idempotency_key": "k"},
        files={"file": ("a.png", png(size=3 * MEGABYTE), "image/png")},
        headers=headers,
    )
    assert answer.status_code == 201, answer.text
    assert intake.file(UUID(answer.json()["shell_file_id"]))["file_size_bytes"] == 3 * MEGABYTE


def test_a_raw_body_is_the_file_whatever_its_kind_is_said_to_be(intake, door):
    # What `curl --data-binary` says unasked.
    answer = door.upload(png(), headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 201
    assert intake.file(UUID(answer.json()["shell_file_id"]))["file_size_bytes"] == len(png())


def test_fifty_megabytes_are_taken_and_one_byte_more_is_not(intake, door):
    most = 50 * MEGABYTE
    assert door.upload(png(size=most)).status_code == 201
    before = intake.objects()
    assert code(door.upload(png("b", size=most + 1))) == (413, "too_large")
    assert intake.objects() == before


def test_a_repetition_gets_the_first_answer_and_leaves_no_object(intake, door):
    first = door.upload(png(), key="k")
    again = door.upload(png(), key="k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["shell_file_id"] == first.json()["shell_file_id"]
    assert again.json()["duplicate"]
    assert len(intake.objects()) == 1
    assert intake.one("select files_uploaded from intake.user_usage_tracking") == 1


def test_without_a_key_the_contents_are_the_key(door):
    first, again, other = door.upload(png("a b")), door.upload(png("a b")), door.upload(png("c d"))
    assert again.json()["shell_file_id"] == first.json()["shell_file_id"] != other.json()["shell_file_id"]


def test_the_correlation_id_goes_through(intake, door):
    wanted = str(uuid4())
    answer = door.upload(png(), headers={"x-correlation-id": wanted})
    assert answer.headers["x-correlation-id"] == answer.json()["correlation_id"] == wanted
    assert intake.one("select job_payload ->> 'correlation_id' from intake.job_queue") == wanted


# ------------------------------------------------------------ what is not


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        (b"", "a.png", (400, "empty")),
        (b"hello, this is a text of some length", "a.png", (415, "unsupported_type")),
        (b"MZ" + b"0" * 60, "a.exe", (415, "unsupported_type")),
        (png(), "a.pdf", (415, "type_mismatch")),
        (png(), "a", (415, "type_mismatch")),
        (png(), "a.png.exe", (415, "type_mismatch")),
        (png(), "", (400, "bad_request")),
    ],
)
def test_what_is_refused_says_why_and_leaves_nothing(intake, door, content, name, expected):
    assert code(door.upload(content, filename=name)) == expected
    assert intake.objects() == []
    assert intake.one("select count(*) from intake.shell_files") == 0


def test_the_same_key_for_another_file_is_a_conflict(intake, door):
    door.upload(png("a"), key="k")
    assert code(door.upload(png("b"), key="k")) == (409, "key_conflict")
    assert len(intake.objects()) == 1


@pytest.mark.parametrize("profile", ["", "nonsense", "1; drop table"])
def test_a_profile_is_an_id(intake, door, profile):
    headers = {"authorization": f"Bearer {intake.token()}"}
    answer = door.http.post(
        UPLOAD, params={"profile_id": profile, "filename": "a.png"}, content=png(), headers=headers
    )
    assert code(answer) == (400, "bad_request")


def test_a_plan_that_is_used_up_refuses_only_when_that_is_switched_on(intake, door):
    intake.conn.execute("update intake.subscription_plans set files_per_month = 1 where plan_type = 'free'")
    assert door.upload(png("a")).status_code == 201
    assert door.upload(png("b")).status_code == 201
    intake.configure("features.plan_limits_enabled", "true")
    assert code(door.upload(png("c"))) == (403, "plan_limit_reached")


@pytest.mark.parametrize(
    "body",
    [b"", b"--x\r\n", b"garbage", b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n--x--\r\n'],
)
def test_a_broken_form_is_refused(intake, door, body):
    headers = {"authorization": f"Bearer {intake.token()}", "content-type": "multipart/form-data; boundary=x"}
    assert code(door.http.post(UPLOAD, content=body, headers=headers)) == (400, "bad_request")


# ------------------------------------------------------------ who


def forged(header: dict, claims: dict, secret: str = SECRET) -> str:
    return jwt.encode(claims, secret, algorithm=header.pop("alg", "HS256"), headers=header)


def test_a_token_is_of_us_for_us_and_not_over(intake, door):
    user = str(intake.owner)
    end = {"exp": 4102444800}
    good = {"sub": user, "aud": "authenticated", "role": "authenticated", **end}

    def part(value: dict) -> str:
        return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    bad = {
        "nothing": ".",
        "not a token": "abc",
        "no signature": f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(good)}.",
        "another algorithm": forged({"alg": "HS512"}, good, SECRET * 2),
        "another secret": forged({}, good, "x" * 40),
        "another audience": forged({}, {**good, "aud": "somebody"}),
        "no audience": forged({}, {"sub": user, "role": "authenticated", **end}),
        "no end": forged({}, {key: value for key, value in good.items() if key != "exp"}),
        "over": intake.token(lasts=timedelta(seconds=-1)),
        "nobody": forged({}, {**good, "sub": "nobody"}),
        "a user who says to be the service": forged({}, {**good, "role": "service_role"}),
    }
    assert door.http.post(UPLOAD, headers={"authorization": f"Bearer {forged({}, good)}"}).status_code == 400
    for why, token in bad.items():
        answer = door.http.post(UPLOAD, headers={"authorization": f"Bearer {token}"}, content=png())
        assert code(answer) == (401, "unauthorized"), why


def test_who_may_upload(intake, door):
    assert door.upload(png("owner"), user=intake.owner).status_code == 201
    assert door.upload(png("helper"), user=intake.helper).status_code == 201
    for user in (intake.friend, intake.stranger, uuid4()):
        assert code(door.upload(png("no"), user=user)) == (403, "forbidden")
    # A profile that is not there is answered like one that is somebody else's.
    assert code(door.upload(png("no"), profile=uuid4())) == (403, "forbidden")
    assert len(intake.objects()) == 2


def test_a_service_does_not_upload(intake, door):
    token = forged({}, {"aud": "authenticated", "role": "service_role", "exp": 4102444800})
    answer = door.http.post(UPLOAD, headers={"authorization": f"Bearer {token}"}, content=png())
    assert code(answer) == (403, "forbidden")


def test_other_methods_are_not_taken(door):
    assert door.http.get(UPLOAD).status_code == 405


def test_only_origins_that_were_named_may_call_from_their_pages(intake, door):
    object.__setattr__(intake.settings, "origins", ("https://app.example",))
    asked = door.http.options(UPLOAD, headers={"origin": "https://app.example"})
    assert asked.headers["access-control-allow-origin"] == "https://app.example"
    assert (
        "access-control-allow-origin"
        not in door.http.options(UPLOAD, headers={"origin": "https://evil.example"}).headers
    )


# ------------------------------------------------------------ cuts


@pytest.mark.parametrize("sent", [0, 1, 20, 70_000, 6 * MEGABYTE])
def test_a_client_that_is_cut_leaves_no_row_no_object_and_no_usage(intake, door, sent):
    """And the next one is served."""
    head = (
        f"POST {UPLOAD}?profile_id={intake.profile}&filename=a.png HTTP/1.1\r\nhost: x\r\n"
        f"authorization: Bearer {intake.token()}\r\ncontent-length: {8 * MEGABYTE}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", door.port)) as connection:
        connection.sendall(head.encode() + png(size=8 * MEGABYTE)[:sent])
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    assert door.upload(png("next")).status_code == 201
    assert intake.one("select count(*) from intake.shell_files") == 1
    assert intake.one("select files_uploaded from intake.user_usage_tracking") == 1
    assert len(intake.objects()) == 1


def test_a_database_that_is_away_is_told_and_nothing_is_left(intake, door):
    assert door.upload(png("before")).status_code == 201
    intake.conn.execute("alter function intake.accept_upload rename to away")
    intake.conn.execute(
        "create function intake.accept_upload(uuid, uuid, text, text, bigint, bytea, text, text, integer, uuid) returns jsonb "
        "language plpgsql as $$begin raise exception 'no' using errcode = '57P03'; end$$"
    )
    intake.conn.execute("grant execute on function intake.accept_upload to service_role")
    answer = door.upload(png("while"))
    assert code(answer) == (503, "unavailable")
    assert answer.headers["retry-after"] == "5"
    assert len(intake.objects()) == 1


def test_many_at_once_with_one_key_are_one_file(intake, door):
    found = []

    def send():
        found.append(door.upload(png("same"), key="k").json())

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({answer["shell_file_id"] for answer in found}) == 1
    assert sum(not answer["duplicate"] for answer in found) == 1
    assert len(intake.objects()) == 1


# ------------------------------------------------------------ audit-logger-v3

EVENT = {"table_name": "clinical_facts", "record_id": "r1", "operation": "UPDATE"}


def log(door, body, user=None, role=None):
    token = (
        forged({}, {"aud": "authenticated", "role": "service_role", "exp": 4102444800})
        if role
        else door.intake.token(user)
    )
    return door.http.post(AUDIT, json=body, headers={"authorization": f"Bearer {token}"})


def test_one_event_is_logged_with_its_ids(intake, door):
    job, correlation = str(uuid4()), str(uuid4())
    body = {
        **EVENT,
        "patient_id": str(intake.profile),
        "job_id": job,
        "correlation_id": correlation,
        "new_values": {"facts": 3},
    }
    answer = log(door, body)
    assert (answer.status_code, answer.json()["logged"]) == (201, 1)
    entry = intake.row_of("select * from intake.audit_log")
    assert (entry.patient_id, str(entry.job_id), entry.correlation_id) == (intake.profile, job, correlation)
    assert entry.changed_by == str(intake.owner)


def test_a_batch_is_logged_whole_or_not_at_all(intake, door):
    mine, theirs = ({**EVENT, "patient_id": str(profile)} for profile in (intake.profile, intake.other))
    assert log(door, {"events": [mine] * 5}).json()["logged"] == 5
    assert code(log(door, {"events": [mine, theirs]})) == (403, "forbidden")
    assert intake.one("select count(*) from intake.audit_log") == 5


def test_a_service_logs_for_anybody(intake, door):
    answer = log(door, {"events": [{**EVENT, "patient_id": str(intake.profile)}, EVENT]}, role="service")
    assert answer.json()["logged"] == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": "DROP"}, {"record_id": "two words"}, {"reason": "Maya has diabetes"}, {"extra": 1}, {"patient_id": "x"},
        {"new_values": {"note": "free text"}}, {"new_values": {"nested": {"a": 1}}}, {"table_name": "A;B"},
    ],
)  # fmt: skip
def test_what_is_not_of_its_kind_is_refused_and_not_repeated(intake, door, wrong):
    answer = log(door, {**EVENT, "patient_id": str(intake.profile), **wrong})
    assert code(answer) == (422, "invalid")
    assert "diabetes" not in answer.text
    assert "free text" not in answer.text


def test_events_are_bounded(intake, door):
    for events in ([EVENT] * 101, []):
        answer = log(door, {"events": events}, role="s")
        assert code(answer) == (422, "invalid")
        assert answer.json()["error"]["message"] == "events: there must be 1 to 100 of them."
    assert code(
        door.http.post(AUDIT, content=b"[", headers={"authorization": f"Bearer {intake.token()}"})
    ) == (400, "bad_request")
    assert code(door.http.post(AUDIT, json=EVENT)) == (401, "unauthorized")


def test_a_request_after_the_database_has_ended_all_sessions_is_answered(intake, door):
    assert door.upload(png()).status_code == 201
    ended = intake.all(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    )
    assert ended

    assert door.upload(png("Glucose 5.5 mmol/L")).status_code == 201
