"""A port for a server: a free one, or the one the user asked for when it is free."""

from __future__ import annotations

import random
import socket

import psutil

from breakeven.errors import UsageError

__all__ = ["choose_port"]

# Below the range that systems hand out to outgoing connections (32768 and up on Linux, 49152 elsewhere), so that nothing takes
# the port between our look and the server's bind.
FIRST_PORT, LAST_PORT = 20_000, 29_999
ATTEMPTS = 200


def choose_port(asked_for: int | None = None) -> int:
    """A port on which nothing listens. Two runs at once choose at random, so they rarely meet; the loser's launch fails clearly.

    Raises:
        UsageError: the port that was asked for is taken, or nothing is free.
    """
    if asked_for is not None:
        if not 1 <= asked_for <= 65535:
            raise UsageError(f"port {asked_for}: expected 1 to 65535")
        if not _is_free(asked_for):
            raise UsageError(f"port {asked_for} is taken{_holder(asked_for)}: end that, choose another port, or give none")
        return asked_for
    choice = random.SystemRandom()
    for _ in range(ATTEMPTS):
        port = choice.randint(FIRST_PORT, LAST_PORT)
        if _is_free(port):
            return port
    raise UsageError(f"no free port found between {FIRST_PORT} and {LAST_PORT}: give one that is free")


def _is_free(port: int) -> bool:
    # bound on every interface: a server on one of them makes the same port elsewhere a trap for whoever reads the report
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # as servers do, so that the last run's connections in TIME_WAIT do not count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _holder(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    except (psutil.Error, OSError):  # other users' connections cannot be read without rights
        pass
    return ""
