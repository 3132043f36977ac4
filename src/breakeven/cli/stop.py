"""`breakeven stop RUN`: end what `breakeven serve RUN --detach` left running."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from breakeven.cli.escaping import print_result

__all__ = ["stop"]


def stop(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print what was ended as JSON.")] = False,
) -> None:
    """End the servers that `breakeven serve --detach` left running for a run, and see that nothing of them is left."""
    import json

    from breakeven.deploy.ending import end_served
    from breakeven.experiment.run_folder import run_folder

    ended = end_served(run_folder(run))
    if as_json:
        content = [{**server.about, "pids": server.pids, "gone_because": server.gone_because or None} for server in ended]
        typer.echo(json.dumps({"ended": content}, indent=2))
        return
    for server in ended:
        name = " at ".join(filter(None, (server.about.get("arm", "a server"), server.about.get("url"))))
        pids = ", ".join(map(str, server.pids))
        print_result(f"{name}: {server.gone_because or f'ended; nothing of it is left (processes {pids})'}")
    if not ended:
        print_result(f"Nothing of {run} is being served.")
