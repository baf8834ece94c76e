"""The system among the engine's pages: its routes, its pages, its schema before anything starts, and people to look at."""

from __future__ import annotations

from pathlib import Path

from starlette.concurrency import run_in_threadpool

from onceward import Onceward
from onceward.web.context import Web
from onceward.web.sections import Link, Section
from onceward_apps.meals import sample
from onceward_apps.meals.pages.calendar import Calendar
from onceward_apps.meals.pages.customers import Customers
from onceward_apps.meals.pages.desk import Desk
from onceward_apps.meals.pages.emails import Emails
from onceward_apps.meals.pages.public import Public
from onceward_apps.meals.pages.today import Today
from onceward_apps.meals.routes import Routes
from onceward_apps.meals.system import Meals

HERE = Path(__file__).parent


def section(app: Onceward, meals: Meals) -> Section:
    desk = Desk(app, meals)

    def prepare(dsn: str) -> None:
        meals.bind(dsn)
        meals.install()

    async def samples(web: Web) -> None:
        meals.bind(web.database.dsn)
        await run_in_threadpool(sample.fill, meals)

    return Section(
        name="meals",
        title="Meals",
        pages=[
            *Today(desk).routes(),
            *Customers(desk).routes(),
            *Emails(desk).routes(),
            *Calendar(desk).routes(),
        ],
        public=Public(Routes(meals)).routes(),
        links=[
            Link("/meals/", "Today"),
            Link("/meals/customers", "Customers"),
            Link("/meals/emails", "Emails"),
            Link("/meals/calendar", "Calendar"),
            *([Link("/meals/try", "Try it")] if meals.settings.is_first_look else []),
        ],
        templates=HERE / "templates",
        static=HERE / "static",
        prepare=prepare,
        samples=samples,
    )
