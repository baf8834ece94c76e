"""A double of a model's provider: counts what it is asked within any window, and answers 429 with Retry-After above its limit.

What asks it says when it did, by the clock that all processes of a machine share: when the machine is busy, the double reads late
what had waited at its door, and requests of two windows would count in one.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from onceward_apps.intake.reading import extract
from tests.apps.intake.stage import SmallReading

SENT = "x-sent"
MARK = re.compile(r"\b[0-9a-f]{24}\b")


class Stamped(Mapping[str, str]):
    """Headers that say when they were asked for: when a request is sent."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def __getitem__(self, name: str) -> str:
        return str(time.monotonic()) if name == SENT else self._headers[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._headers, SENT])

    def __len__(self) -> int:
        return len(self._headers) + 1


def reading_by(url: str) -> SmallReading:
    """Pages are read by the small reader, passes 1 and 2 by the provider, through the client for it."""
    reading = SmallReading()
    settings = extract.Settings(openai_url=url, openai_key="for the double", max_output_tokens=500)
    asking = extract.provider("openai", settings)
    reading.extractor = replace(
        asking, endpoint=replace(asking.endpoint, headers=Stamped(asking.endpoint.headers))
    )
    return reading


class Provider:
    """Speaks OpenAI's chat completions.  `most` requests may begin within any `period` seconds, each taking `work` seconds."""

    def __init__(self, most: int, period: float, *, work: float = 0.0) -> None:
        self.most = most
        self.period = period
        self.work = work
        # When the requests were sent that it took on, in order.
        self.began: list[float] = []
        # When it refused; and those of them that were above the limit.
        self.refusals: list[float] = []
        self.over = 0
        # Refused whatever the limit says: so many, or for so many seconds from the next one on; and how long it asks to wait.
        self.to_refuse = 0
        self.refuse_for = 0.0
        self._refuse_until = 0.0
        self.retry_after = 1
        self.most_at_once = 0
        # What each question has used, whenever it was answered: a worker that was killed has it asked again.
        self.used: dict[str, list[int]] = {}
        self._at_once = 0
        self._lock = threading.Lock()
        provider = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, answer, headers = provider.answer(body, float(self.headers[SENT]))
                content = json.dumps(answer).encode()
                # Who asked may be dead by now.
                with contextlib.suppress(ConnectionError):
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, *unused: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 1024

            def handle_error(self, *unused: object) -> None:
                """A connection that a killed worker left."""

        self._server = Server(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def refused(self) -> int:
        return len(self.refusals)

    @property
    def tokens(self) -> int:
        """All that it has charged."""
        return sum(sum(used) for used in self.used.values())

    @property
    def kept(self) -> int:
        """What the last answer to each question has used."""
        return sum(used[-1] for used in self.used.values())

    def answer(self, body: dict, sent: float) -> tuple[int, dict, dict]:
        with self._lock:
            now = time.monotonic()
            if self.refuse_for:
                self._refuse_until, self.refuse_for = now + self.refuse_for, 0.0
            over = self.between(sent - self.period, sent) >= self.most
            self.over += over
            if over or self.refused < self.to_refuse or now < self._refuse_until:
                self.refusals.append(sent)
                return 429, {"error": {"message": "slow down"}}, {"retry-after": str(self.retry_after)}
            bisect.insort(self.began, sent)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            # No two answers in a row cost the same.
            used = {"prompt_tokens": 100 + len(self.began) % 37, "completion_tokens": 11}
        threading.Event().wait(self.work)
        with self._lock:
            self._at_once -= 1
            # Each time it is asked, the document stands between other marks.
            question = MARK.sub("", json.dumps(body, sort_keys=True))
            self.used.setdefault(question, []).append(sum(used.values()))
        return 200, _completion(body["response_format"]["json_schema"]["name"], used), {}

    def between(self, start: float, end: float) -> int:
        """How many were sent after `start`, and until `end`."""
        return bisect.bisect_right(self.began, end) - bisect.bisect_right(self.began, start)

    def busiest(self) -> int:
        """The most that began within any window."""
        return max(
            (bisect.bisect_left(self.began, at + self.period) - place for place, at in enumerate(self.began)), default=0
        )  # fmt: skip


def _completion(wanted: str, used: dict) -> dict:
    answer: dict = {"facts": []}
    if wanted == "AnsweredClassification":
        answer = {"kind": "lab_report", "confidence": 0.9, "language": "en", "entities": []}
    message = {"role": "assistant", "content": json.dumps(answer)}
    return {
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {**used, "total_tokens": sum(used.values())},
    }
