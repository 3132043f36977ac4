"""A Deployment and a Service for one arm."""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import Any

import yaml

from breakeven.deploy.container import MODELS, PORT, SCHEDULE, SHARED_MEMORY_BYTES, Container, header

__all__ = ["kubernetes_manifest"]

CLAIM = "breakeven-models"
PROBE_PERIOD_S = 10


def kubernetes_manifest(described: Container) -> str:
    """Deployment, Service, and a ConfigMap for a schedule. Models come from a volume claim that is not part of them."""
    name = described.name
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "breakeven"}
    selector = {"app.kubernetes.io/name": name}
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        # else Kubernetes sets variables named after every service, and engines read some of those as their own (VLLM_PORT)
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "containers": [_engine(described)],
        "volumes": [
            {"name": "models", "persistentVolumeClaim": {"claimName": CLAIM, "readOnly": True}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_BYTES // 2**20}Mi"}},
        ],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            # a second server beside the first would need its GPUs too
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": selector, "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
    }
    documents = [deployment, service]
    if described.schedule is not None:
        metadata = {"name": f"{name}-schedule", "labels": labels}
        pod["volumes"].append({"name": "schedule", "configMap": {"name": metadata["name"]}})
        pod["containers"][0]["volumeMounts"].append({"name": "schedule", "mountPath": str(PurePosixPath(SCHEDULE).parent)})
        data = {PurePosixPath(SCHEDULE).name: described.schedule}
        documents.insert(0, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    places = ", ".join(place.removeprefix(MODELS) for place in described.models.values())
    checks = [
        f"volume: the claim {CLAIM} must hold the models, at {places}",
        "resources: an estimate from the models' files and the plan, not a measurement",
    ]
    return header(described, checks) + yaml.safe_dump_all(documents, sort_keys=False, width=1000)


def _engine(described: Container) -> dict[str, Any]:
    program, *arguments = (_literal(word) for word in described.argv)
    probe = {"httpGet": {"path": described.health_path, "port": "http"}, "periodSeconds": PROBE_PERIOD_S, "timeoutSeconds": 10}
    requests: dict[str, Any] = {"memory": f"{(described.memory_bytes + SHARED_MEMORY_BYTES) // 2**20}Mi"}
    if described.num_cpus is not None:
        requests["cpu"] = str(described.num_cpus)
    resources: dict[str, Any] = {"requests": requests}
    if described.num_gpus:
        # devices are given whole: what is asked for is also the limit
        resources["limits"] = {"nvidia.com/gpu": described.num_gpus}
    return {
        "name": "engine",
        "image": described.image,
        "command": [program],
        "args": arguments,
        "env": [{"name": name, "value": _literal(value)} for name, value in described.env.items()],
        "ports": [{"name": "http", "containerPort": PORT}],
        "resources": resources,
        "startupProbe": {**probe, "failureThreshold": max(3, math.ceil(described.start_timeout_s / PROBE_PERIOD_S))},
        "readinessProbe": {**probe, "failureThreshold": 3},
        "livenessProbe": {**probe, "failureThreshold": 6},
        "volumeMounts": [
            {"name": "models", "mountPath": MODELS, "readOnly": True},
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108  # the container's own
        ],
    }


def _literal(text: str) -> str:
    """Kubernetes fills in $(NAME); two dollar signs stand for one there."""
    return text.replace("$(", "$$(")
