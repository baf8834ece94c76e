"""Payloads are typed by the handler's signature: checked when a job is enqueued, and again when it runs."""

import asyncio
from datetime import date
from decimal import Decimal

from pydantic import BaseModel, Field

from onceward import Onceward
from onceward.errors import InvalidPayload
from onceward.worker import Worker

app = Onceward()


@app.task
async def bill(customer: str, amount: Decimal, due: date, copies: int = 1) -> None:
    print(f"{customer} owes {amount} by {due:%d %B %Y}, {copies} copy")


class Parcel(BaseModel):
    weight: float = Field(gt=0)
    to: str


@app.task
async def ship(parcel: Parcel) -> None:
    print(f"{parcel.weight} kg to {parcel.to}")


if __name__ == "__main__":
    with app.client() as client:
        client.enqueue(bill, {"customer": "Ada", "amount": "19.90", "due": "2030-01-31"})
        client.enqueue(ship, Parcel(weight=1.5, to="Oslo"))
        try:
            client.enqueue(bill, {"customer": "Bob", "amount": "a lot", "due": "2030-01-31", "copy": 2})
        except InvalidPayload as error:
            print(error)
    asyncio.run(Worker(app, concurrency=1).drain())

# Output:
# payload does not fit task bill: amount: Input should be a valid decimal, got 'a lot'; copy: Extra inputs are not permitted
# detail: Nothing was written.
# hint: Task bill takes customer: str, amount: Decimal, due: date, copies: int (optional).
# Ada owes 19.90 by 31 January 2030, 1 copy
# 1.5 kg to Oslo
