"""Pages of an application, in the frame of the engine's own: served here by a real server, and asked like a browser would."""

import asyncio
import tempfile
import threading
from pathlib import Path

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onceward import Onceward
from onceward.web import Section, WebSettings, layout
from onceward.web.sections import Link
from onceward.web.server import make_server, open_socket

app = Onceward()
templates = Path(tempfile.mkdtemp())
(templates / "orders.html").write_text(
    '{% extends "page.html" %}{% block title %}Orders{% endblock %}'
    "{% block content %}{% for order in orders %}<p>Order {{ order }}: {{ ui.chip('ready') }}</p>{% endfor %}{% endblock %}"
)


async def show(request: Request) -> Response:
    # What comes from outside is escaped.
    return await layout.page(request, "orders/orders.html", orders=[1, "<script>"])


async def count(request: Request) -> Response:
    return JSONResponse({"orders": 2})


async def track(request: Request) -> Response:
    return JSONResponse({"parcel": request.path_params["parcel"]})


app.sections.append(
    Section(
        name="orders",
        title="Orders",
        pages=[Route("/", show)],
        api=[Route("/count", count)],
        # At the root, for everybody: a customer has no account here.
        public=[Route("/track/{parcel}", track)],
        links=[Link("/orders/", "Orders")],
        templates=templates,
    )
)

if __name__ == "__main__":
    with open_socket("127.0.0.1", 0) as listening:
        started = threading.Event()
        server = make_server(WebSettings(apps=[app], sections=app.sections), started=started.set)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        started.wait(30)
        with httpx.Client(base_url=f"http://localhost:{listening.getsockname()[1]}") as browser:
            page = browser.get("/orders/").text
            print("in the navigation:", '<a href="/orders/" aria-current="page">Orders' in page)
            print("escaped:", "Order &lt;script&gt;" in page)
            print("api:", browser.get("/api/orders/count").json())
            print("public:", browser.get("/track/7", headers={"host": "shop.example"}).json())
            print("not public:", browser.get("/orders/", headers={"host": "shop.example"}).status_code)
        server.stop()
        thread.join()

# Output:
# in the navigation: True
# escaped: True
# api: {'orders': 2}
# public: {'parcel': '7'}
# not public: 303
