"""An application that only sends: what others put into the lane `deliveries`, with providers from the environment.

`onceward worker onceward.deliveries.sender:app` is the worker for alerts of monitors, and for producers that write no Python.
"""

from __future__ import annotations

from onceward.app import Onceward
from onceward.deliveries.settings import Deliveries

app = Onceward(name="onceward sender")
Deliveries(app)
