"""An order and its mail in one transaction; a message whose outcome is unclear waits for a person instead of going out twice.

Without settings, mails go to a folder: ONCEWARD_EMAIL=smtp://… or resend: names a server, and nothing else changes.
"""

import asyncio
import tempfile
from pathlib import Path

import psycopg

from onceward import Onceward
from onceward.deliveries import Deliveries, NotSent, Outbox, Outgoing
from onceward.dsn import resolve_dsn
from onceward.worker import Worker

app = Onceward()
folder = Path(tempfile.mkdtemp())


class DeadLine:
    """A chat service that takes the message and breaks the connection before it answers."""

    name, idempotent_for = "dead line", None

    async def send(self, outgoing: Outgoing) -> NotSent:
        return NotSent("no_reply", "no answer to the request", unclear=True)


Deliveries(app, email=Outbox(folder, sender="Shop <shop@example.com>"), slack=DeadLine())


def place_order(order: int, *, declined: bool = False) -> None:
    with psycopg.connect(resolve_dsn()) as connection, app.client() as client:
        connection.execute("create table if not exists paid_orders (id int primary key)")
        connection.execute("insert into paid_orders values (%s)", [order])
        mail = {"to": "jane@example.com", "subject": f"Order {order}", "text": "Thank you!"}
        client.deliveries.email(**mail, key=f"receipt:{order}", connection=connection)
        # The key names the effect: the same one again changes nothing.
        again = client.deliveries.email(**mail, key=f"receipt:{order}", connection=connection)
        print(f"order {order}: created again: {again.created}")
        if declined:
            raise RuntimeError("the card was declined")


def show_outbox() -> None:
    for mail in sorted(folder.glob("*.eml")):
        headers = [line for line in mail.read_text().splitlines() if line.startswith(("To", "Subject"))]
        # What else waited in this database, as another example's alert, goes out as well.
        if "To: jane@example.com" in headers:
            print(", ".join(headers))


async def main() -> None:
    async with app.async_client() as client:
        message = await client.deliveries.slack(text="Order 1 is paid", key="paid:1")
        await Worker(app).drain()
        show_outbox()

        found = await client.deliveries.get(message)
        print(f"message: {found.state} after {found.tries} try ({found.message})")
        print("decided:", await client.deliveries.decide(message, "sent", note="it is in the channel"))


if __name__ == "__main__":
    place_order(1)
    try:
        place_order(2, declined=True)
    except RuntimeError as error:
        print(f"order 2: {error}")
    asyncio.run(main())

# Output:
# order 1: created again: False
# order 2: created again: False
# order 2: the card was declined
# To: jane@example.com, Subject: Order 1
# message: uncertain after 1 try (no answer to the request)
# decided: sent
