"""The pages of the console, one module per noun."""

from starlette.routing import BaseRoute

from onceward.web.pages import (
    alerts,
    audit,
    channels,
    components,
    dead_letters,
    deliveries,
    doctor,
    job,
    jobs,
    lane,
    lanes,
    limits,
    monitors,
    overview,
    retention,
    schedules,
    workers,
)

PAGES: list[BaseRoute] = [
    route
    for module in (
        overview,
        jobs,
        job,
        dead_letters,
        alerts,
        lanes,
        lane,
        limits,
        schedules,
        deliveries,
        workers,
        monitors,
        channels,
        audit,
        retention,
        doctor,
        components,
    )
    for route in module.ROUTES
]
