"""One trace from the request to the job and its steps.  The exporter is what changes: here, spans are printed."""

import asyncio

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from onceward import Job, Onceward
from onceward.contrib.opentelemetry import instrument
from onceward.worker import Worker

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))

app = Onceward()
instrument(app, tracer_provider=provider)


@app.task
async def bill(order: int, job: Job) -> str:
    price = await job.step("price", lambda: 42)
    return f"order {order}: {price}"


async def main() -> None:
    async with app.async_client() as client:
        with trace.get_tracer("shop", tracer_provider=provider).start_as_current_span("POST /orders"):
            await client.enqueue(bill, {"order": 7})
        await Worker(app).drain()
    finished = spans.get_finished_spans()
    print(len({span.context.trace_id for span in finished}), "trace")
    show(finished, None, 0)


def show(finished: tuple[ReadableSpan, ...], parent: int | None, depth: int) -> None:
    for span in finished:
        if (span.parent.span_id if span.parent else None) == parent:
            print("  " * depth + span.name)
            show(finished, span.context.span_id, depth + 1)


if __name__ == "__main__":
    asyncio.run(main())

# Output:
# 1 trace
# POST /orders
#   enqueue bill
#     run bill
#       step price
