"""The result as one HTML file that needs nothing else: no network, no server, readable on a phone, in the dark and on paper.

Strings are escaped by the template; figures reach the page's script as JSON in which `<`, `>`, `&` and line separators are
escaped, so no string can end the script. A content security policy forbids every fetch, as a second wall.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

import orjson
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from breakeven import __version__
from breakeven.report import text
from breakeven.report.lookup import Lookup
from breakeven.report.plots import plots_of
from breakeven.units import format_duration
from breakeven.verdict.result import Result

__all__ = ["render_html"]

# Valid inside JSON strings, and harmless inside a script element.
SCRIPT_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def render_html(result: Result) -> str:
    """The whole page, about 1.2 MB, nearly all of it the plotting library."""
    plots = plots_of(result)
    figures = orjson.dumps({view.key: view.figure for plot in plots for view in plot.views}).decode().translate(SCRIPT_ESCAPES)
    scripts = [_asset("plotly-basic.min.js"), f"const FIGURES = {figures};", _asset("draw.js")] if plots else []
    return _template().render(
        result=result,
        lookup=Lookup(result),
        plots=plots,
        best_notes=_best_notes(result),
        ratio_levels=text.levels(item.ratio for item in result.comparisons),
        marks=text.OUTCOME_MARKS,
        missing=text.MISSING,
        style=Markup(_asset("report.css")),  # noqa: S704 - our own file
        scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own files, and JSON escaped above
        script_hashes=" ".join(_hash(script) for script in scripts),
        version=__version__,
    )


def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "accept_length": text.accept_length,
        "duration": lambda value_s: text.MISSING if value_s is None else format_duration(value_s),
        "interval": text.interval,
        "outcome": text.outcome,
        "percent": text.percent,
        "plain": text.plain,
        "quantity": text.quantity,
        "simulated": text.simulated,
        "speedup": text.speedup,
        "tokens_a_round": text.tokens_a_round,
        "two_digits": text.two_digits,
    }
    return environment.from_string((files("breakeven.report") / "templates" / "report.html.j2").read_text(encoding="utf-8"))


def _asset(name: str) -> str:
    return (files("breakeven.report") / "assets" / name).read_text(encoding="utf-8")


def _best_notes(result: Result) -> dict[str, list[str]]:
    """What each arm's own best hides; arms with the same note together."""
    notes: dict[str, list[str]] = {}
    for best in result.own_best:
        if best.note:
            notes.setdefault(best.note, []).append(best.arm)
    return notes


def _hash(script: str) -> str:
    """The script's name in a content security policy: only scripts with these hashes run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
