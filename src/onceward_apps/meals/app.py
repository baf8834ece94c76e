"""The application, from the environment: `onceward worker onceward_apps.meals.app:app`, or `onceward up` with the same name."""

from __future__ import annotations

import os

from onceward_apps.meals.jobs import register
from onceward_apps.meals.section import section
from onceward_apps.meals.settings import Settings
from onceward_apps.meals.system import Meals

meals = Meals(Settings.from_environ(os.environ))
app = register(meals.app(), meals)
app.sections.append(section(app, meals))
