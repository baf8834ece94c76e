"""CPU-bound handlers run in processes of their own, so that they neither hold up nor are held up by the others.

The other process finds the handler by importing its module: keep it at the top level, and start nothing on import.
"""

import asyncio
import os

from onceward import Onceward
from onceward.worker import Worker

app = Onceward()


@app.task(executor="process")
def count_primes(below: int) -> dict[str, int]:
    primes = sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(2, below))
    return {"primes": primes, "pid": os.getpid()}


if __name__ == "__main__":
    with app.client() as client:
        job = client.enqueue(count_primes, {"below": 10_000})
        asyncio.run(Worker(app).drain())
        result = client.wait(job)
        print(f"{result['primes']} primes, in another process: {result['pid'] != os.getpid()}")

# Output:
# 1229 primes, in another process: True
