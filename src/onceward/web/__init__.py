"""The web pages, and the way for an application to add its own.

    from onceward.web import Section, WebSettings, create_app

`create_app(WebSettings(...))` is an ASGI application; `onceward web` serves it.
"""

from onceward.web import layout
from onceward.web.app import create_app
from onceward.web.context import Web, web_of
from onceward.web.sections import Section
from onceward.web.settings import ApiSettings, Sso, WebSettings

__all__ = ["ApiSettings", "Section", "Sso", "Web", "WebSettings", "create_app", "layout", "web_of"]
