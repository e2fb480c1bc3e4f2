"""Resume functions in a function's folder: where they lie, and which entry goes on in which.

This stands apart from what the pages and reports show of them, for which a first call need not wait.
"""

from __future__ import annotations

import re

from ..records.compilation import EntryRecord, FunctionRecord


def subfolder(top: FunctionRecord, function: FunctionRecord) -> str:
    """The folder of a resume function below the function's own, with a slash; '' for the function itself."""
    if function is top or function.folder is None or top.folder is None or function.folder == top.folder:
        return ""
    return function.folder.relative_to(top.folder).as_posix() + "/"


def continues(function: FunctionRecord, entry: EntryRecord) -> list[str]:
    """The resume functions that an entry's code calls."""
    called = set(re.findall(r"\b(\w+)\(", entry.transformed_text))
    return [resume.name for resume in function.goes_on_in() if resume.name in called]
