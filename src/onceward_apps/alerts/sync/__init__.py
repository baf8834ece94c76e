"""Rows from other systems: one incremental connector, four kinds of sources, and the customer profiles built from them.

Importing it registers the functions.
"""

from __future__ import annotations

from onceward_apps.alerts.sync import functions

__all__ = ["functions"]
