"""Bounds on what waits: enqueue says when a lane is above one, puts off, or refuses."""

from onceward import Onceward, calls
from onceward.bounds import Bounds
from onceward.errors import EnqueueRejected
from onceward.model_limits import BoundOver

app = Onceward()


@app.task(lane="reports")
async def report(number: int) -> None: ...


if __name__ == "__main__":
    with app.client() as client:
        client.enqueue_many(report, [{"number": n} for n in range(5)])
        answers: tuple[BoundOver, ...] = ("signal", "defer", "reject")
        for over in answers:
            Bounds(client).set("reports", max_depth=3, over=over)
            # What every worker does about once a second.
            client.run(calls.promote())
            try:
                ref = client.enqueue(report, {"number": 6})
                print(ref.answer, "|", ref.reason)
            except EnqueueRejected as error:
                print("rejected |", error.message)

# Output:
# accepted | more than 3 jobs are ready in lane "reports"
# deferred | more than 3 jobs are ready in lane "reports"
# rejected | the job was rejected: more than 3 jobs are ready in lane "reports"
