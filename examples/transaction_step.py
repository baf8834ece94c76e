"""Your rows and the checkpoint are committed together, so the rows are written exactly once."""

import asyncio
from datetime import timedelta
from typing import Any

import psycopg

from onceward import Job, Onceward, Retry
from onceward.dsn import resolve_dsn
from onceward.worker import Worker

app = Onceward()


async def next_number(connection: psycopg.AsyncConnection[Any], order: int) -> int:
    cursor = await connection.execute("insert into invoices (order_id) values (%s) returning number", [order])
    (number,) = await cursor.fetchone() or (0,)
    return int(number)


@app.task(retry=Retry(waits=[timedelta(0)]))
async def bill(order: int, job: Job) -> str:
    # The function form: its result is kept with the rows, and later attempts get it.
    number = await job.transaction("numbered", next_number, order)
    # The block form, for rows alone: a later attempt leaves it at the first use of the connection.
    async with job.transaction("booked") as connection:
        await connection.execute("update accounts set balance = balance - 10")
        print("booked")
    if job.attempt == 1:
        raise RuntimeError("the mail server is down")
    return f"invoice {number}"


if __name__ == "__main__":
    with psycopg.connect(resolve_dsn(), autocommit=True) as connection, app.client() as client:
        connection.execute("create table invoices (number serial, order_id int)")
        connection.execute("create table accounts (balance int)")
        connection.execute("insert into accounts values (100)")
        ref = client.enqueue(bill, {"order": 7})
        asyncio.run(Worker(app).drain())
        print(client.wait(ref), f"after {client.job(ref).attempt} attempts")
        print(connection.execute("select count(*) from invoices").fetchone())
        print(connection.execute("select balance from accounts").fetchone())

# Output:
# booked
# invoice 1 after 2 attempts
# (1,)
# (90,)
