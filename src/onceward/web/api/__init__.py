"""What programs ask over HTTP: health for everybody, and `/api/v1` for whoever has a token.

`create_api` makes the application that app.py mounts at /api/v1.  Every rule of the engine stays in the database; what
is here turns a request into a call and an answer, or an error into a problem.
"""

from onceward.web.api.build import create_api

__all__ = ["create_api"]
