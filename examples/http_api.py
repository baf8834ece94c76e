"""The engine over HTTP: a token with scopes, a job enqueued once for each Idempotency-Key, its result, and a problem."""

import asyncio
import threading

import httpx

from onceward import Onceward
from onceward.calls import access
from onceward.web import WebSettings, secrets
from onceward.web.server import make_server, open_socket
from onceward.worker import Worker

app = Onceward()


@app.task
async def add(a: int, b: int) -> int:
    return a + b


def main() -> None:
    # `onceward token create shop --scope read,enqueue` does the same, and shows the token once.
    token = secrets.new(secrets.TOKEN)
    with app.client() as client:
        client.run(access.create_token("shop", secrets.digest(token), ["read", "enqueue"]))

    # `onceward web` does the same.
    listening, ready = open_socket("127.0.0.1", 0), threading.Event()
    server = make_server(WebSettings(apps=[app]), started=ready.set)
    serving = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    serving.start()
    ready.wait()

    address = f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1"
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}) as http:
        sent = {"task": "add", "payload": {"a": 1, "b": 2}}
        first = http.post("/jobs", json=sent, headers={"Idempotency-Key": "sum-1"})
        # The reply was lost, say: the same request again has no second effect.
        again = http.post("/jobs", json=sent, headers={"Idempotency-Key": "sum-1"})
        print(first.status_code, again.json() == first.json(), again.headers["Idempotent-Replayed"])

        asyncio.run(Worker(app).drain())
        job = first.json()["id"]
        ended = http.get(f"/jobs/{job}/wait", params={"timeout": 30}).json()
        print(ended["state"], ended["result"])

        wrong = http.post("/jobs", json={"task": "add", "payload": {}, "priority": "high"})
        for error in wrong.json()["errors"]:
            print(wrong.status_code, error["field"], "-", error["message"])
        print(http.post(f"/jobs/{job}/requeue").json()["title"])

    server.stop()
    serving.join()
    listening.close()


if __name__ == "__main__":
    main()

# Output:
# 201 True true
# done 3
# 422 priority - Input should be a valid integer
# The token lacks the scope operate.
