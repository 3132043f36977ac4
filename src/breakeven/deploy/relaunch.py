"""The command that served an arm in its run, made ready to be run again: same program, same flags, same environment, new port."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from breakeven.engines.base import Arm, LaunchCommand
from breakeven.engines.own_command import own_command
from breakeven.engines.registry import get_engine
from breakeven.errors import UsageError
from breakeven.experiment.provenance import collect_provenance
from breakeven.experiment.record import RunRecord
from breakeven.experiment.secrets import HIDDEN
from breakeven.experiment.stored_run import last_command

__all__ = ["Relaunch", "changes_since", "relaunch"]

PORT_FLAG = "--port"
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_ENVIRONMENT = "env."
# What moves speeds: a difference here explains a measurement that does not come out again.
_COMPARED = re.compile(r"(cpu|gpu|os|memory|breakeven)(\..+)?|package\..+|env\..+|.+\.fingerprint")
# They name a start of Breakeven itself, or its caches, and mean nothing to a server.
_OURS = "env.BREAKEVEN_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaunch:
    """`stored` is the command as the run launched it. `recorded` is what the run's servers took from their environment.

    `inherited` is the part of it that this environment does not give them: a command to copy is the better for being short.
    """

    arm: Arm
    stored: LaunchCommand
    recorded: Mapping[str, str]
    inherited: Mapping[str, str]

    def command(self, port: int) -> LaunchCommand:
        """What to start now. The flags are the stored ones: another release of Breakeven might choose others.

        Raises:
            UsageError: the stored command has no place for a port.
        """
        env = {**self.inherited, **self.stored.env}
        if self.arm.command:
            return LaunchCommand(argv=own_command(self.arm, port, {}).argv, env=env)
        argv = list(self.stored.argv)
        if PORT_FLAG not in argv[:-1]:
            raise UsageError(f"arm {self.arm.name}: the command that the run stored has no {PORT_FLAG}; measure the arm again")
        argv[argv.index(PORT_FLAG) + 1] = str(port)
        return LaunchCommand(argv=tuple(argv), env=env)


def relaunch(folder: Path, record: RunRecord, arm: Arm) -> Relaunch:
    """How `arm` was last launched in the run.

    Raises:
        UsageError: it never became ready there, so there is nothing to repeat.
        StoreError: the run cannot be read.
    """
    text = last_command(folder, arm.name)
    if text is None:
        raise UsageError(f"arm {arm.name}: never became ready in this run; run breakeven bench again, or choose another --arm")
    words = shlex.split(text)
    env: dict[str, str] = {}
    while words and _ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    if arm.resets_cache:
        # nothing empties the cache of a server that is in use, and what let Breakeven do it lets others in as well
        engine = get_engine(arm.engine)
        for name in (
            engine.launch_command(arm, 1).env.keys() - engine.launch_command(replace(arm, resets_cache=False), 1).env.keys()
        ):
            env.pop(name, None)
    recorded = {
        key.removeprefix(_ENVIRONMENT): value
        for key, value in record.provenance.items()
        if key.startswith(_ENVIRONMENT) and not key.startswith(_OURS) and value != HIDDEN
    }
    inherited = {name: value for name, value in recorded.items() if os.environ.get(name) != value}
    return Relaunch(arm=arm, stored=LaunchCommand(argv=tuple(words), env=env), recorded=recorded, inherited=inherited)


def changes_since(record: RunRecord, arm: Arm) -> tuple[str, ...]:
    """What is no longer as it was when the run began: models first, then machine, packages and environment.

    Raises:
        CheckpointError: the target or the drafter is gone.
    """
    now = {key: value for key, value in collect_provenance([arm]).items() if _is_compared(key)}
    mine = ("target.fingerprint", f"drafter of {arm.name}.fingerprint")
    then = {
        key: value
        for key, value in record.provenance.items()
        if _is_compared(key) and (not key.endswith(".fingerprint") or key in mine)
    }
    changed = [key for key in sorted(then.keys() | now.keys()) if then.get(key) != now.get(key)]
    changed.sort(key=lambda key: not key.endswith(".fingerprint"))
    return tuple(_told(key, then.get(key), now.get(key)) for key in changed)


def _is_compared(key: str) -> bool:
    return _COMPARED.fullmatch(key) is not None and not key.startswith(_OURS)


def _told(key: str, then: str | None, now: str | None) -> str:
    if key.endswith(".fingerprint"):
        return (
            f"The {key.removesuffix('.fingerprint')} has changed since the run ({then or 'unknown'} -> {now or 'unknown'}): "
            "what is served is not what was measured"
        )
    if key.startswith(_ENVIRONMENT) and then is not None:
        # the relaunch sets it back
        return f"{key.removeprefix(_ENVIRONMENT)} is {now or 'not set'} here; the server gets {then}, as in the run"
    return f"{key.removeprefix(_ENVIRONMENT)} was {then or 'not set'} in the run and is {now or 'not set'} now"
