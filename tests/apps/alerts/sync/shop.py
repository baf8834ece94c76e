"""A shop with an API in the manner of Shopify, on a real socket: pages by Link headers or by cursors, and trouble on demand."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, dict[str, str], bytes]


class Server(ABC):
    """Answers every request by `answer(method, path, body, headers)`."""

    def __init__(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, more, content = outer.answer(self.command, self.path, body, headers)
                self.send_response(status)
                for name, value in {"content-length": str(len(content)), **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the names that the library looks for

            def log_message(self, *unused: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @abstractmethod
    def answer(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer: ...

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class Shop(Server):
    def __init__(self) -> None:
        super().__init__()
        self.orders: list[dict[str, Any]] = []
        # Parameters of every request, in order.
        self.asked: list[dict[str, str]] = []
        self.seen_headers: list[dict[str, str]] = []
        # Called before each answer; what it returns is answered instead.
        self.trouble: Callable[[int], Answer | None] = lambda number: None
        self.paging = "link"

    def answer(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        parameters = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        self.asked.append(parameters)
        self.seen_headers.append(headers)
        trouble = self.trouble(len(self.asked))
        if trouble is not None:
            return trouble
        # "since|position" is what a page is named by.
        since, _, position = parameters.get("page_info", "").partition("|")
        since = since or parameters.get("updated_at_min", "")
        start, size = int(position or 0), int(parameters.get("limit", "250"))
        found = [order for order in self.orders if not since or _time(order["updated_at"]) >= _time(since)]
        found.sort(key=lambda order: _time(order["updated_at"]))
        content: dict[str, Any] = {"orders": found[start : start + size]}
        more: dict[str, str] = {}
        if start + size < len(found):
            named = f"{since}|{start + size}"
            if self.paging == "cursor":
                content["meta"] = {"next": named}
            else:
                more["link"] = (
                    f'<{self.url}/orders.json?limit={size}&page_info={named.replace("+", "%2B").replace("|", "%7C")}>; rel="next"'
                )
        return 200, {"content-type": "application/json", **more}, json.dumps(content).encode()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def order(number: int, at: str, **more: Any) -> dict[str, Any]:
    """As a shop writes it."""
    return {
        "id": number,
        "customer": {"id": 1000 + number % 3},
        "contact_email": f"c{number % 3}@example.com",
        "created_at": at,
        "updated_at": at,
        "total_price": "19.90",
        "currency": "EUR",
        "financial_status": "paid",
        **more,
    }


COLUMNS = {
    "order_id": "id",
    "customer_id": "customer.id",
    "email": "contact_email",
    "ordered_at": "created_at",
    "amount": "total_price",
    "status": "financial_status",
}
