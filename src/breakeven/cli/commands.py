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


def register(app: typer.Typer) -> None:
    """Attach every subcommand to `app`."""
    app.command("bench")(bench)
    data.command("states")(states)
    app.add_typer(data, name="data")
    app.command("doctor", epilog=DOCTOR_EPILOG)(doctor)
    app.command("equal")(equal)
    app.command("eval")(evaluate)
    app.command("export")(export)
    app.command("fetch")(fetch)
    app.command("gates")(gates)
    app.command("head")(head)
    app.command("predict")(predict)
    app.command("profile")(profile)
    app.command("read", epilog=EPILOG)(read)
    app.command("serve")(serve)
    app.command("stop")(stop)
    app.command("train", epilog=TRAIN_EPILOG)(train)
    app.command("verdict")(verdict)
    app.command("report")(report)
