"""Spreadsheets: CSV, XLSX and JSON lines; rows in, rows out."""

from storekeeper.domain.errors import Code, StorekeeperError

FIELDS = ("id", "name", "address", "version")
"""The columns that mean themselves."""

TYPES = {
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "jsonl": "application/jsonl",
}
"""The media type of each format."""

Record = tuple[int, list[object]]
"""The line where a row begins, and its cells: texts, of JSON lines anything; None if the row
lacks the column."""


class BadFile(StorekeeperError):
    """The file cannot be imported as it is; `parameter` is the one that helps, with a `value` to
    try.

    If more than one must be said, `query` and `options` have them all, for the API and for the
    command.
    """

    code = Code.BAD_FILE

    def __init__(
        self,
        problem: str,
        parameter: str = "",
        value: str = "",
        *,
        query: str = "",
        options: str = "",
    ) -> None:
        self.parameter = parameter
        self.value = value
        self.query = query
        self.options = options
        super().__init__(problem)
