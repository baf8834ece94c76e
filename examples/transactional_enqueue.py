"""An order and the job that sends its receipt, in one transaction: both exist after a commit, neither after a rollback."""

import asyncio

import psycopg

from onceward import Onceward
from onceward.dsn import resolve_dsn
from onceward.worker import Worker

app = Onceward()


@app.task
async def send_receipt(order: int) -> None:
    print(f"receipt for order {order}")


def place_order(order: int, *, fail: bool = False) -> None:
    with psycopg.connect(resolve_dsn()) as connection, app.client() as client:
        connection.execute("create table if not exists orders (id int primary key)")
        connection.execute("insert into orders values (%s)", [order])
        client.enqueue(send_receipt, {"order": order}, connection=connection)
        if fail:
            raise RuntimeError("the card was declined")


if __name__ == "__main__":
    place_order(1)
    try:
        place_order(2, fail=True)
    except RuntimeError as error:
        print(f"order 2: {error}")
    asyncio.run(Worker(app).drain())

# Output:
# order 2: the card was declined
# receipt for order 1
