"""The Kubernetes manifest of a Dask cluster (a resource of the Dask operator), a pure function of a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.engine.clusters.scripts import ENVIRONMENT

if TYPE_CHECKING:
    from coremargin.engine.clusters.specs import Kubernetes


def text(cluster: Kubernetes) -> str:
    """The manifest as YAML, for ``kubectl apply -f``."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Without references: what is there twice is written twice."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(resource(cluster), Dumper=Plain, sort_keys=False)


def resource(cluster: Kubernetes) -> dict[str, Any]:
    """The DaskCluster resource as plain data."""
    labels = {"dask.org/cluster-name": cluster.name, "dask.org/component": "scheduler"}
    ports = [("tcp-comm", 8786), ("http-dashboard", 8787)]
    return {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": {"name": cluster.name, "namespace": cluster.namespace},
        "spec": {
            "worker": {"replicas": cluster.workers, "spec": _pod(cluster, _worker(cluster))},
            "scheduler": {
                "spec": _pod(cluster, _scheduler(cluster, ports)),
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
    amounts = {"cpu": str(cluster.threads), "memory": f"{-(-cluster.memory // 2**20)}Mi"}
    return {"name": "worker", "args": arguments, "resources": {"requests": amounts, "limits": amounts}}


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


def _pod(cluster: Kubernetes, container: dict[str, Any]) -> dict[str, Any]:
    variables = [{"name": name, "value": value} for name, value in (ENVIRONMENT | cluster.environment).items()]
    mounts: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    if cluster.volume_claim is not None:
        mounts.append({"name": "store", "mountPath": cluster.mount})
        volumes.append({"name": "store", "persistentVolumeClaim": {"claimName": cluster.volume_claim}})
    if cluster.tls_secret is not None:
        mounts.append({"name": "tls", "mountPath": "/tls", "readOnly": True})
        volumes.append({"name": "tls", "secret": {"secretName": cluster.tls_secret, "defaultMode": 0o400}})
    name, rest = container["name"], {key: value for key, value in container.items() if key != "name"}
    full = {"name": name, "image": cluster.image, **rest, "env": variables}
    return {
        "containers": [full | ({"volumeMounts": mounts} if mounts else {})],
        **({"volumes": volumes} if volumes else {}),
        "securityContext": {"runAsNonRoot": True},
    }
