"""The application for another ASGI server, `storekeeper.service:application`; and `mounted`, for
the process of another application."""

from storekeeper.process.service import application, mounted

__all__ = ["application", "mounted"]
