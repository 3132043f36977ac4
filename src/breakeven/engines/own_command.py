"""A server started by the user's own command: a container, a job scheduler, several hosts."""

from __future__ import annotations

from collections.abc import Mapping

from breakeven.engines.base import Arm, LaunchCommand

__all__ = ["PORT", "own_command"]

PORT = "{port}"


def own_command(arm: Arm, port: int, env: Mapping[str, str]) -> LaunchCommand:
    """The arm's command with the port put in. It stays in the foreground and ends its server on SIGTERM.

    env: what the engine needs to be told besides; the arm's own comes last.
    """
    return LaunchCommand(argv=tuple(part.replace(PORT, str(port)) for part in arm.command), env={**env, **arm.env})
