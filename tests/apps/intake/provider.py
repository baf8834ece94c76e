"""A double of a model's provider: counts what it is asked within any window, and answers 429 with Retry-After above its limit."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Provider:
    """Speaks OpenAI's chat completions.  `most` requests may begin within any `period` seconds."""

    def __init__(self, most: int, period: float) -> None:
        self.most = most
        self.period = period
        self.began: list[float] = []
        self.refused = 0
        # Refused whatever the limit says.
        self.to_refuse = 0
        self.tokens = 0
        self._lock = threading.Lock()
        provider = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, answer, headers = provider.answer(body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *unused: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, body: dict) -> tuple[int, dict, dict]:
        now = time.monotonic()
        with self._lock:
            within = sum(1 for at in self.began if at > now - self.period)
            if within >= self.most or self.refused < self.to_refuse:
                self.refused += 1
                return 429, {"error": {"message": "slow down"}}, {"retry-after": "1"}
            self.began.append(now)
            used = {"prompt_tokens": 100 + len(json.dumps(body)) % 37, "completion_tokens": 11}
            self.tokens += sum(used.values())
        return 200, _completion(body["response_format"]["json_schema"]["name"], used), {}

    def busiest(self) -> int:
        """The most that began within any window."""
        return max(
            (sum(1 for other in self.began if at <= other < at + self.period) for at in self.began), default=0
        )


def _completion(wanted: str, used: dict) -> dict:
    answer: dict = {"facts": []}
    if wanted == "AnsweredClassification":
        answer = {"kind": "lab_report", "confidence": 0.9, "language": "en", "entities": []}
    message = {"role": "assistant", "content": json.dumps(answer)}
    return {
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {**used, "total_tokens": sum(used.values())},
    }
