"""The error of this package that a user can meet."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class OomtuneError(RuntimeError):
    """One sentence, what to do next, and a stable code: docs/reference/errors.md lists the codes.

    `document` is what the program printed as JSON, if it printed a result: of a search that found nothing, say.
    """

    def __init__(self, code: str, message: str, remedy: str, document: dict[str, Any] | None = None) -> None:
        super().__init__(code, message, remedy)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.document = document

    def __str__(self) -> str:
        return "%s %s (%s)" % (self.message, self.remedy, self.code)
