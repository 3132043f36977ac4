"""The table of subcommands: name, function, file. A new command is one line here and one file beside it."""

from __future__ import annotations

import typer

from breakeven.cli.bench import bench
from breakeven.cli.data import data
from breakeven.cli.data_states import states
from breakeven.cli.doctor import EPILOG as DOCTOR_EPILOG
from breakeven.cli.doctor import doctor
from breakeven.cli.equal import equal
from breakeven.cli.eval import evaluate
from breakeven.cli.export import export
from breakeven.cli.fetch import fetch
from breakeven.cli.gates import gates
from breakeven.cli.head import head
from breakeven.cli.predict import predict
from breakeven.cli.profile import profile
from breakeven.cli.read import EPILOG, read
from breakeven.cli.report import report
from breakeven.cli.serve import serve
from breakeven.cli.stop import stop
from breakeven.cli.train import EPILOG as TRAIN_EPILOG
from breakeven.cli.train import train
from breakeven.cli.verdict import verdict

__all__ = ["register"]

MEASURE, UNDERSTAND, TRAIN = "Measure a deployment", "Predict, read, diagnose", "A drafter of your own"


def register(app: typer.Typer) -> None:
    """Attach every subcommand to `app`, in the order in which somebody would want them."""
    app.command("bench", rich_help_panel=MEASURE)(bench)
    app.command("verdict", rich_help_panel=MEASURE)(verdict)
    app.command("report", rich_help_panel=MEASURE)(report)
    app.command("equal", rich_help_panel=MEASURE)(equal)
    app.command("profile", rich_help_panel=MEASURE)(profile)
    app.command("serve", rich_help_panel=MEASURE)(serve)
    app.command("stop", rich_help_panel=MEASURE)(stop)
    app.command("predict", rich_help_panel=UNDERSTAND)(predict)
    app.command("read", epilog=EPILOG, rich_help_panel=UNDERSTAND)(read)
    app.command("doctor", epilog=DOCTOR_EPILOG, rich_help_panel=UNDERSTAND)(doctor)
    app.command("fetch", rich_help_panel=TRAIN)(fetch)
    app.command("head", rich_help_panel=TRAIN)(head)
    data.command("states")(states)
    app.add_typer(data, name="data", rich_help_panel=TRAIN)
    app.command("train", epilog=TRAIN_EPILOG, rich_help_panel=TRAIN)(train)
    app.command("eval", rich_help_panel=TRAIN)(evaluate)
    app.command("gates", rich_help_panel=TRAIN)(gates)
    app.command("export", rich_help_panel=TRAIN)(export)
