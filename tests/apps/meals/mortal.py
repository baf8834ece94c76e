"""The application of workers that are killed: it sends through an API with idempotency keys, at MEALS_TEST_RESEND."""

from __future__ import annotations

import os
from datetime import timedelta

from onceward.deliveries import Resend
from onceward_apps.meals.jobs import register
from onceward_apps.meals.system import Meals
from tests.apps.meals.place import SETTINGS


def resend(url: str) -> Resend:
    return Resend("key", "meals@frontiermeals.com", url, timedelta(seconds=2))


if url := os.environ.get("MEALS_TEST_RESEND"):
    meals = Meals(SETTINGS, email=resend(url), environ={})
    app = register(meals.app(), meals)
