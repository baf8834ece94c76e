"""What a mail server may do, and what is known afterwards."""

from __future__ import annotations

import gc
import socket
import ssl
import threading
from dataclasses import replace

import pytest
import trustme

from onceward.deliveries import NotSent, Sent, Smtp
from onceward.errors import InvalidArgument
from tests.deliveries.conftest import LONG, MAIL, SHORT, send
from tests.deliveries.sinks import MailSink


def mail(command: str, **more):
    return {**MAIL, "to": f"jane+{command}@example.com", **more}


def test_a_mail_arrives_with_a_message_id_and_a_date_that_are_the_same_in_every_try(smtp, mail_sink):
    first, second = send(smtp), send(smtp, tries=2)

    assert first == second == Sent("<00000000-0000-0000-0000-000000000007@example.com>")
    one, two = mail_sink.kept
    assert one.content == two.content
    assert (one.to, one.sender) == ("jane@example.com", "shop@example.com")
    assert one.message["Message-ID"] == first.ref
    assert one.message["Date"] == "Wed, 02 Jan 2030 03:04:05 +0000"
    assert one.message["Auto-Submitted"] == "auto-generated"
    assert one.message["From"] == "Shop <shop@example.com>"


@pytest.mark.parametrize(
    ("command", "report"),
    [
        ("rcpt_450", NotSent("refused", "the server answered 450 4.2.1 to RCPT")),
        ("rcpt_550", NotSent("refused", "the server answered 550 5.1.1 to RCPT", permanent=True)),
        ("data_451", NotSent("refused", "the server answered 451 4.3.0 to the message")),
        ("data_552", NotSent("refused", "the server answered 552 5.3.4 to the message", permanent=True)),
        ("hang_rcpt", NotSent("connection", "the connection broke at RCPT: SMTPReadTimeoutError")),
        ("drop_at_data", NotSent("connection", "the connection broke at DATA: SMTPServerDisconnected")),
    ],
)
def test_before_the_final_dot_nothing_has_arrived(smtp, mail_sink, command, report):
    assert send(replace(smtp, timeout=SHORT if "hang" in command else LONG), mail(command)) == report
    assert mail_sink.kept == []


@pytest.mark.parametrize(
    "command", ["drop_after_dot", "drop_after_dot_lost", "hang_after_dot", "hang_after_dot_lost"]
)
def test_after_the_final_dot_only_the_reply_tells(smtp, mail_sink, command):
    report = send(replace(smtp, timeout=SHORT if "hang" in command else LONG), mail(command))

    assert (report.category, report.unclear, report.permanent) == ("no_reply", True, False)
    assert len(mail_sink.kept) == (0 if command.endswith("_lost") else 1)


def test_a_connection_that_breaks_within_a_large_message_has_delivered_nothing(mail_sink):
    patient = Smtp("127.0.0.1", mail_sink.port, "none", sender="shop@example.com")

    report = send(patient, mail("drop_in_body", text=("x" * 70 + "\n") * 120_000))

    assert (report.category, report.unclear) == ("connection", False)
    assert "before the final dot" in report.message


def test_a_server_that_is_not_there_is_tried_again(mail_sink):
    with MailSink() as gone:
        port = gone.port

    report = send(Smtp("127.0.0.1", port, "none", sender="shop@example.com"))

    assert (report.category, report.permanent, report.unclear) == ("connection", False, False)


def test_lines_that_begin_with_a_dot_arrive_as_they_are(smtp, mail_sink):
    text = ".\n..\n.hidden\nend"

    send(smtp, {**MAIL, "text": text})

    assert mail_sink.kept[0].message.get_content().splitlines() == text.splitlines()


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def contexts(authority):
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    return server, client


def test_tls_from_the_start(authority):
    server, client = contexts(authority)
    with MailSink(server) as sink:
        way = Smtp("localhost", sink.port, "tls", sender="s@example.com", timeout=LONG, ssl_context=client)

        assert isinstance(send(way), Sent)


class Deaf:
    """A mail server that takes a message and says goodbye, and never ends the TLS session."""

    def __init__(self, context):
        self._context = context
        self._listener = socket.create_server(("localhost", 0))
        self.port = self._listener.getsockname()[1]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self._over.set()
        self._thread.join()
        self._listener.close()

    def _serve(self):
        raw, _ = self._listener.accept()
        with (
            self._context.wrap_socket(raw, server_side=True) as session,
            session.makefile("rw", newline="") as lines,
        ):
            in_message = False
            answers = {"DATA": "354 go on", "QUIT": "221 goodbye"}
            self._say(lines, "220 deaf")
            for line in lines:
                said = line.strip()
                if in_message and said != ".":
                    continue
                self._say(lines, answers.get(said, "250 ok"))
                in_message = said == "DATA"
                if said == "QUIT":
                    break
            self._over.wait()

    @staticmethod
    def _say(lines, text):
        lines.write(f"{text}\r\n")
        lines.flush()


def test_a_tls_session_that_the_server_does_not_end_is_closed_when_the_mail_is_sent(authority):
    server, client = contexts(authority)
    with Deaf(server) as deaf:
        way = Smtp("localhost", deaf.port, "tls", sender="s@example.com", timeout=LONG, ssl_context=client)

        assert isinstance(send(way), Sent)

        # By their type: some objects of others answer for what they stand for, and are gone by now.
        sockets = [found for found in gc.get_objects() if issubclass(type(found), socket.socket)]
        # The loop of another thread has a pair of its own, of another family.
        sockets = [found for found in sockets if found.family in {socket.AF_INET, socket.AF_INET6}]
        assert [found for found in sockets if peer_port(found) == deaf.port] == []


def peer_port(connection):
    try:
        return connection.getpeername()[1]
    except OSError:
        return None


def test_starttls_is_required_and_not_hoped_for(authority):
    server, client = contexts(authority)
    with MailSink(tls_context=server) as able, MailSink() as unable:
        to = {"security": "starttls", "sender": "s@example.com", "timeout": LONG, "ssl_context": client}

        assert isinstance(send(Smtp("localhost", able.port, **to)), Sent)
        assert send(Smtp("localhost", unable.port, **to)).category == "tls"
        assert unable.kept == []


def test_a_certificate_of_somebody_else_is_not_accepted(authority):
    server, _ = contexts(authority)
    with MailSink(server) as sink:
        report = send(Smtp("localhost", sink.port, "tls", sender="s@example.com", timeout=LONG))

    assert (report.category, report.permanent, report.unclear) == ("connection", False, False)
    assert sink.kept == []


def test_a_wrong_password_is_a_matter_of_configuration_and_is_tried_again(authority):
    from aiosmtpd.smtp import AuthResult

    server, client = contexts(authority)
    refuse = {
        "authenticator": lambda *unused: AuthResult(success=False, handled=False),
        "auth_require_tls": False,
    }
    with MailSink(server, **refuse) as sink:
        way = Smtp("localhost", sink.port, "tls", "jane", "wrong", "s@example.com", LONG, client)

        assert send(way) == NotSent("auth", "the server answered 535")


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("smtp://jane@mail.example.com:2525", ("mail.example.com", 2525, "starttls", "jane", "from env")),
        ("smtps://jane%40x:p%3Aw@mail.example.com", ("mail.example.com", 465, "tls", "jane@x", "p:w")),
        ("smtp://localhost?security=none", ("localhost", 587, "none", None, "from env")),
    ],
)
def test_a_server_is_named_by_a_url(url, parts):
    way = Smtp.from_url(url, sender="s@example.com", environ={"ONCEWARD_SMTP_PASSWORD": "from env"})

    assert (way.host, way.port, way.security, way.user, way.password) == parts
    assert "p:w" not in repr(way)
    assert "from env" not in repr(way)


@pytest.mark.parametrize(
    "url", ["smtp://", "http://x", "smtp://h:port", "smtp://user:hunter2@h?security=maybe"]
)
def test_a_url_that_cannot_be_read_is_refused_without_repeating_it(url):
    with pytest.raises(InvalidArgument, match="cannot read the URL") as raised:
        Smtp.from_url(url, sender="s@example.com")
    assert "hunter2" not in str(raised.value)
