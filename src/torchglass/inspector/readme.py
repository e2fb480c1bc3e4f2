"""README.md of a function's folder: its record in, Markdown out. What happened, in the order in which it
happened.

    folder.write("README.md", readme(record))
"""

from __future__ import annotations

import re
from functools import cache

import jinja2

from ..records.compilation import FunctionRecord
from . import show
from .resumed import continues, subfolder


def readme(record: FunctionRecord, asked: bool = True) -> str:
    """The text for people who open the folder of a function and know no compiler. ``asked``: it has a report.html."""
    functions = [f for f in record.walk() if f is record or f.entries or f.fallbacks]
    entries = [entry for function in functions for entry in function.entries]
    summary = ", ".join(
        (
            show.count(len(record.entries), "entry"),
            show.count(sum(len(e.graphs) for e in entries), "graph"),
            show.count(sum(len(e.breaks) for e in entries), "graph break"),
            show.count(sum(len(f.recompiles) for f in functions), "recompile"),
        )
    )

    def where(function: FunctionRecord) -> str:
        return "" if function is record else subfolder(record, function) or f"{function.name}/"

    def reached(function: FunctionRecord) -> dict[str, str]:
        return {resume.name: where(resume) for resume in function.goes_on_in() if resume.entries}

    given = {"record": record, "functions": functions, "asked": asked, "where": where, "reached": reached}
    text = _template().render(summary=summary + ".", **given)
    # What is absent leaves blank lines behind.
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("torchglass.inspector"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown
    )
    names = (
        show.place, show.written_at, show.count, show.size, show.value, show.guard_line, show.seconds, show.gradients,
        continues,
    )  # fmt: skip
    environment.globals.update({function.__name__: function for function in names}, cell=_cell)
    return environment.get_template("README.md.j2")


def _cell(text: str) -> str:
    """A text that may stand in a Markdown table."""
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")
