"""report.html of a function's folder: its record in, one page out that needs nothing else, no network either.

    folder.write("report.html", report(record))

The page is made of a template, a style sheet and a script from ``templates/``, the record as JSON and the flow chart.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

import jinja2

from ..records.compilation import FunctionRecord
from .flow import flow
from .report_data import report_data


def report(record: FunctionRecord) -> str:
    """The page's text."""
    data = json.dumps(report_data(record), separators=(",", ":"), ensure_ascii=False)
    data = data.replace("</", "<\\/").replace("<!--", "<\\!--")  # nothing in it may end the script element
    return _template().render(name=record.name, data=data, flow=flow(record), **_texts())


@cache
def _texts() -> dict[str, str]:
    """The style sheet and the script: plain texts, which the template language need not read."""
    folder = files("torchglass.inspector") / "templates"
    return {name: (folder / f"report.{name}").read_text(encoding="utf-8") for name in ("css", "js")}


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("torchglass.inspector"), undefined=jinja2.StrictUndefined, autoescape=False
    )
    return environment.get_template("report.html.j2")
