"""The result as one HTML file that needs nothing else: no network, no server, readable on a phone, in the dark and on paper.

Strings are escaped by the template; figures reach the page's script as JSON in which `<`, `>`, `&` and line separators are
escaped, so no string can end the script. A content security policy forbids every fetch, as a second wall.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

import orjson
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from breakeven import __version__
from breakeven.report import text
from breakeven.report.plots import plots_of
from breakeven.verdict.result import Result

__all__ = ["render_html"]

# Valid inside JSON strings, and harmless inside a script element.
SCRIPT_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def render_html(result: Result) -> str:
    """The whole page, about 1.2 MB, nearly all of it the plotting library."""
    resources = files("breakeven.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "plain": text.plain,
        "interval": text.interval,
        "speedup": text.speedup,
        "accept_length": text.accept_length,
        "percent": text.percent,
        "quantity": text.quantity,
    }
    plots = plots_of(result)
    figures = orjson.dumps({plot.key: plot.figure for plot in plots}).decode().translate(SCRIPT_ESCAPES)
    scripts = [
        (resources / "assets" / "plotly-basic.min.js").read_text(encoding="utf-8"),
        f"const FIGURES = {figures};",
        (resources / "assets" / "draw.js").read_text(encoding="utf-8"),
    ]
    if not plots:
        scripts = []
    template = environment.from_string((resources / "templates" / "report.html.j2").read_text(encoding="utf-8"))
    return template.render(
        result=result,
        plots=plots,
        comparisons={(item.arm, item.load): item for item in result.comparisons},
        marks=text.OUTCOME_MARKS,
        missing=text.MISSING,
        style=Markup((resources / "assets" / "report.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own files, and JSON escaped above
        script_hashes=" ".join(_hash(script) for script in scripts),
        version=__version__,
    )


def _hash(script: str) -> str:
    """The script's name in a content security policy: only scripts with these hashes run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
