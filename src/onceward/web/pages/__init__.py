"""The pages of the console, one module per noun."""

from starlette.routing import BaseRoute

from onceward.web.pages import (
    components,
    dead_letters,
    deliveries,
    doctor,
    job,
    jobs,
    lanes,
    overview,
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
        lanes,
        schedules,
        deliveries,
        workers,
        doctor,
        components,
    )
    for route in module.ROUTES
]
