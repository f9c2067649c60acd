"""Scheduler and workers as pods, through the Dask operator: manifest, ``kubectl apply``, and port forwarding.

The manifest is a pure function of the spec. Each job applies it under a name of its own, the spec's with a random
suffix, so that jobs with the same cluster file neither share nor delete each other's pods.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from msgspec import structs

from coremargin.engine.clusters.processes import (
    BackgroundProcess,
    log_failure,
    run_command,
    run_if_killed,
    uninterrupted,
)
from coremargin.engine.clusters.worker_command import ENVIRONMENT
from coremargin.errors import RunError, UsageError
from coremargin.spec import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distributed import Client

    from coremargin.engine.clusters.specs import Kubernetes, Toleration

log = logging.getLogger(__name__)

_SUFFIX_BYTES = 4  # of the name; specs.py leaves room for their digits
_PAUSE_S = 2.0  # before the next attempt to reach a pod


def manifest(cluster: Kubernetes) -> str:
    """The manifest as YAML, for ``kubectl apply -f``."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Without references: repeated values are written out."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(_resource(cluster), Dumper=Plain, sort_keys=False)


def _resource(cluster: Kubernetes) -> dict[str, Any]:
    """The DaskCluster resource as plain data."""
    labels = {"dask.org/cluster-name": cluster.name, "dask.org/component": "scheduler"}
    ports = [("tcp-comm", 8786), ("http-dashboard", 8787)]
    return {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": {
            "name": cluster.name,
            "namespace": cluster.namespace,
            # the operator copies them to scheduler and workers
            **({"annotations": dict(cluster.annotations)} if cluster.annotations else {}),
        },
        "spec": {
            "worker": {"replicas": cluster.workers, "spec": pod_spec(cluster, _worker(cluster))},
            "scheduler": {
                "spec": pod_spec(cluster, _scheduler(cluster, ports)),
                "service": {
                    "type": "ClusterIP",
                    "selector": labels,
                    "ports": [
                        {"name": name, "protocol": "TCP", "port": port, "targetPort": name} for name, port in ports
                    ],
                },
            },
        },
    }


def _worker(cluster: Kubernetes) -> dict[str, Any]:
    # the operator puts scheduler address and name into the environment of the pod
    arguments = ["dask", "worker", "--name", "$(DASK_WORKER_NAME)", "--nthreads", str(cluster.threads)]
    arguments += ["--memory-limit", "0", "--no-dashboard", "--death-timeout", "60", *_tls_arguments(cluster)]
    return {"name": "worker", "args": arguments, "resources": worker_resources(cluster)}


def worker_resources(cluster: Kubernetes) -> dict[str, Any]:
    """What a container with the threads and the memory of the spec requests."""
    amounts = {"cpu": str(cluster.threads), "memory": f"{-(-cluster.memory // 2**20)}Mi"}
    return {"requests": amounts, "limits": amounts}


def _scheduler(cluster: Kubernetes, ports: list[tuple[str, int]]) -> dict[str, Any]:
    return {
        "name": "scheduler",
        "args": ["dask", "scheduler", *_tls_arguments(cluster)],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports],
        "readinessProbe": {"httpGet": {"port": "http-dashboard", "path": "/health"}, "periodSeconds": 10},
        "livenessProbe": {"httpGet": {"port": "http-dashboard", "path": "/health"}, "periodSeconds": 20},
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
    }


def _tls_arguments(cluster: Kubernetes) -> list[str]:
    if cluster.tls_secret is None:
        return []
    files = {"--tls-ca-file": "/tls/ca.crt", "--tls-cert": "/tls/tls.crt", "--tls-key": "/tls/tls.key"}
    return ["--protocol", "tls", *(argument for pair in files.items() for argument in pair)]


def pod_spec(
    cluster: Kubernetes, container: dict[str, Any], environment: Mapping[str, str] = ENVIRONMENT
) -> dict[str, Any]:
    """A pod with one container, and with the image, variables, volumes, account and nodes of the spec.

    container: its name, and what the spec does not say; environment: variables that the spec may replace.
    """
    environment = {**environment, **cluster.environment}
    if container["name"] == "worker" and cluster.tls_secret is not None:  # the operator's own begins with tcp://
        service = f"{cluster.name}-scheduler.{cluster.namespace}.svc.cluster.local"
        environment |= {"DASK_SCHEDULER_ADDRESS": f"tls://{service}:8786"}
    variables = [{"name": name, "value": value} for name, value in environment.items()]
    mounts: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    if cluster.volume_claim is not None:
        mounts.append({"name": "store", "mountPath": cluster.mount})
        volumes.append({"name": "store", "persistentVolumeClaim": {"claimName": cluster.volume_claim}})
    if cluster.tls_secret is not None:
        mounts.append({"name": "tls", "mountPath": "/tls", "readOnly": True})
        # files of a secret belong to root, and pods run as another user
        volumes.append({"name": "tls", "secret": {"secretName": cluster.tls_secret, "defaultMode": 0o444}})
    name, rest = container["name"], {key: value for key, value in container.items() if key != "name"}
    full = {"name": name, "image": cluster.image, **rest}
    if variables:
        full["env"] = variables
    if cluster.env_from:
        full["envFrom"] = [{"secretRef": {"name": secret}} for secret in cluster.env_from]
    if mounts:
        full["volumeMounts"] = mounts
    pod: dict[str, Any] = {"containers": [full]}
    if volumes:
        pod["volumes"] = volumes
    if cluster.service_account is not None:
        pod["serviceAccountName"] = cluster.service_account
    if cluster.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in cluster.image_pull_secrets]
    if cluster.node_selector:
        pod["nodeSelector"] = dict(cluster.node_selector)
    if cluster.tolerations:
        pod["tolerations"] = [_toleration(toleration) for toleration in cluster.tolerations]
    return pod | {"securityContext": {"runAsNonRoot": True}}


def _toleration(toleration: Toleration) -> dict[str, Any]:
    fields = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.toleration_seconds,
    }
    return {name: value for name, value in fields.items() if value is not None}


def start_pods(cluster: Kubernetes, stack: ExitStack) -> tuple[Client, BackgroundProcess, str]:
    """A client of the scheduler's pod, the process that forwards its port, and the name of the cluster.

    ``stack`` ends both and deletes the pods, also if they cannot be started.
    """
    # only here: distributed takes half a second to import, and the manifest does not need it
    from coremargin.engine.clusters.connection import connect_client

    if shutil.which("kubectl") is None:
        raise UsageError("the command 'kubectl' is not on this host; it applies the manifest and reaches the scheduler")
    cluster = structs.replace(cluster, name=f"{cluster.name}-{secrets.token_hex(_SUFFIX_BYTES)}")
    text, place = manifest(cluster), f"daskclusters.kubernetes.dask.org {cluster.name} -n {cluster.namespace}"

    def delete() -> None:
        try:
            # an apply that failed may have created nothing
            command = ["kubectl", "delete", "--ignore-not-found", "--wait=false", "-f", "-"]
            uninterrupted(lambda: run_command(command, text))
        except RunError as error:
            raise RunError(f"{error}; see whether it is still there: kubectl get {place}") from error

    # before it is applied: kubectl may fail after the API server has created the cluster, and the driver may be killed
    stack.callback(run_if_killed(["kubectl", "delete", "--ignore-not-found", "--wait=false", *place.split()]))
    stack.callback(log_failure(delete))
    log.info("kubectl apply: %s", place)
    uninterrupted(lambda: run_command(["kubectl", "apply", "-f", "-"], text))
    port, process = _forward(cluster, stack)
    try:
        client = connect_client(f"{'tls' if cluster.tls else 'tcp'}://127.0.0.1:{port}", cluster)
    except RunError as error:
        if (end := process.exit_message()) is not None:
            error.add_note(end)
        raise
    stack.callback(client.close)
    return client, process, cluster.name


def _forward(cluster: Kubernetes, stack: ExitStack) -> tuple[int, BackgroundProcess]:
    """A local port forwarded to the scheduler's pod, and the process that forwards it; waits for the pod."""
    command = ["kubectl", "-n", cluster.namespace, "port-forward", f"service/{cluster.name}-scheduler", ":8786"]
    deadline = time.monotonic() + cluster.start_timeout
    while True:
        process = BackgroundProcess(
            command, "kubectl port-forward", r"Forwarding from 127\.0\.0\.1:(\d+)", ends_with_driver=True
        )
        with ExitStack() as failed:
            failed.callback(process.stop, 0.0)
            match = process.wait_ready(deadline - time.monotonic())
            if match is not None:
                stack.push(failed.pop_all())
                return int(match[1]), process
        if time.monotonic() + _PAUSE_S > deadline:
            waited = format_seconds(cluster.start_timeout)
            raise RunError(f"the scheduler's pod is not there after {waited}: {process.last_line()}")
        time.sleep(_PAUSE_S)
