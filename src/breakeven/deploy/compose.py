"""A docker compose file for one arm."""

from __future__ import annotations

import math
from typing import Any

import yaml

from breakeven.deploy.container import PORT, SCHEDULE, SHARED_MEMORY_BYTES, Container, header

__all__ = ["compose_file"]


def compose_file(described: Container) -> str:
    """One service that listens on this machine's loopback, with the models mounted read-only."""
    program, *arguments = (_literal(word) for word in described.argv)
    probe = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{PORT}{described.health_path}', timeout=5)"
    service: dict[str, Any] = {
        "image": described.image,
        # images bring entrypoints of their own
        "entrypoint": [program],
        "command": arguments,
        "environment": {name: _literal(value) for name, value in described.env.items()},
        "ports": [f"127.0.0.1:{PORT}:{PORT}"],
        "volumes": [
            {"type": "bind", "source": _literal(str(folder)), "target": place, "read_only": True}
            for folder, place in described.models.items()
        ],
        "shm_size": SHARED_MEMORY_BYTES,
        "healthcheck": {
            "test": ["CMD", "python3", "-c", probe],
            "interval": "10s",
            "timeout": "10s",
            "retries": 3,
            "start_period": f"{math.ceil(described.start_timeout_s)}s",
        },
        "stop_grace_period": "30s",
        "restart": "unless-stopped",
    }
    if described.num_gpus:
        gpus = {"driver": "nvidia", "count": described.num_gpus, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [gpus]}}}
    else:
        limits: dict[str, Any] = {"memory": f"{described.memory_bytes // 2**20}M"}
        if described.num_cpus is not None:
            limits["cpus"] = str(described.num_cpus)
        service["deploy"] = {"resources": {"reservations": limits}}
    files: dict[str, Any] = {}
    if described.schedule is not None:
        service["configs"] = [{"source": "schedule", "target": SCHEDULE}]
        files = {"configs": {"schedule": {"content": _literal(described.schedule)}}}
    checks = [
        "models: folders of a Hugging Face cache hold links that lead out of them; copy them with links followed (cp -rL)",
        f"ports: only this machine reaches 127.0.0.1:{PORT}",
        "resources: an estimate from the models' files and the plan, not a measurement",
    ]
    if described.schedule is not None:
        checks.append("configs: written into this file, which docker compose reads from 2.23.1 on")
    content = {"services": {described.name: service}, **files}
    return header(described, checks) + yaml.safe_dump(content, sort_keys=False, width=1000)


def _literal(text: str) -> str:
    """Compose fills in what follows a dollar sign."""
    return text.replace("$", "$$")
