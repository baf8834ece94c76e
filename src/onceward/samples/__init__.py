"""The shop that `onceward up` shows: tasks that work, wait, retry and fail, and a page with a button for each.

`tasks` is what its worker runs; `section` is its page, and shows how an application adds one.
"""

from onceward.samples.tasks import app

__all__ = ["app"]
