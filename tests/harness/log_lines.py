"""The log of this process as a list of lines, by a clock that the test moves."""

import pytest

from storekeeper.log import events


class LogLines(list[str]):
    """The lines that are logged from now on; no event was logged before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 1000.0
        """Seconds, by the clock that decides what is suppressed."""
        monkeypatch.setattr(events, "write_line", self.append)
        monkeypatch.setattr(events, "monotonic", lambda: self.now)
        monkeypatch.setattr(events, "_due", {})
        events.suppressed.clear()
