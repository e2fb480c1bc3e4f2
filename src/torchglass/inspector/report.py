"""report.html of a function's folder: its record in, one page out that needs nothing else, no network either.

    folder.write("report.html", report(record))

The page is made of a template, a style sheet and a script from ``templates/``, the record as JSON and the flow chart.
"""

from __future__ import annotations

import html
import json
import string
from functools import cache
from importlib.resources import files

from ..records.compilation import FunctionRecord
from .flow import flow
from .report_data import report_data


def report(record: FunctionRecord) -> str:
    """The page's text."""
    data = json.dumps(report_data(record), separators=(",", ":"), ensure_ascii=False)
    data = data.replace("</", "<\\/").replace("<!--", "<\\!--")  # nothing in it may end the script element
    texts = {name: _text(f"report.{name}") for name in ("css", "js")}
    page = string.Template(_text("report.html"))
    return page.substitute(texts, name=html.escape(record.name), data=data, flow=flow(record))


@cache
def _text(name: str) -> str:
    return (files("torchglass.inspector") / "templates" / name).read_text(encoding="utf-8")
