"""The application for another ASGI server: `storekeeper.service:application`."""

from storekeeper.process.service import application

__all__ = ["application"]
