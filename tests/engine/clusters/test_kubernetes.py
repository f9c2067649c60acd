"""Kubernetes: manifests by the schemas of the API server and of the Dask operator, and pods as processes."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml
from msgspec import structs

from coremargin import spec as specs
from coremargin.engine.clusters.connect import connect, render
from coremargin.engine.clusters.specs import ClusterSpec, Kubernetes, Tls, Toleration, load_cluster
from coremargin.errors import RunError, SpecError
from stand_ins import TEXT, here, noted, scans
from tls_kit import own_certificate

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor
    from stand_ins import Command

FILE = Path(__file__).resolve().parents[3] / "cluster" / "kubernetes.toml"
#: A spec with every key of pods.
FULL = Kubernetes(
    image="registry.example.org/coremargin:0.1",
    insecure=True,
    environment={"TOKENIZERS_PARALLELISM": "false", "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token"},
    env_from=("bucket-keys", "more.keys"),
    service_account="runner",
    image_pull_secrets=("registry",),
    node_selector={"kubernetes.io/arch": "amd64", "pool": ""},
    tolerations=(
        Toleration(key="dedicated", value="batch", effect="NoSchedule"),
        Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute", toleration_seconds=60),
        Toleration(operator="Exists"),
    ),
    annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "note": "any: text, 'quoted'"},
    volume_claim="stores",
)
#: A kubectl with the part of the operator: its pods are processes of this machine. ``{files}``: names of files of the
#: pods to files here. The addresses that the operator would give are taken from dask_kubernetes 2026.3.0.
OPERATOR = (
    TEXT
    + """
import json, os, signal, socket, time, yaml
words = [word for word in sys.argv[1:] if word != "-"]
if "port-forward" in words:
    name = words[words.index("port-forward") + 1].removeprefix("service/").removesuffix("-scheduler")
else:
    cluster = yaml.safe_load(sys.stdin)
    name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
state = pathlib.Path(f"{__file__}.{name}.json")
if "port-forward" in words:
    print(f"Forwarding from 127.0.0.1:{json.loads(state.read_text())['port']} -> 8786", flush=True)
    time.sleep(600)
elif "delete" in words:
    for pod in json.loads(state.read_text())["pods"]:
        os.killpg(pod, signal.SIGKILL)
    state.unlink()
else:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    service = f"{name}-scheduler.{namespace}.svc.cluster.local:8786"
    pods = []
    def start(part, more, given):
        (container,) = cluster["spec"][part]["spec"]["containers"]
        environment = given | {one["name"]: one["value"] for one in container["env"]}
        environment = {key: value.replace(service, f"127.0.0.1:{port}") for key, value in environment.items()}
        words = [environment[word[2:-1]] if word.startswith("$(") else word for word in container["args"]]
        words = [{files}.get(word, word) for word in words]
        assert words[0] == "dask"
        out = open(f"{__file__}.{name}.{part}.log", "a")
        process = subprocess.Popen([sys.executable, "-m", *words, *more], env=dict(os.environ) | environment,
            stdout=out, stderr=out, start_new_session=True)
        pods.append(process.pid)
    start("scheduler", ["--host", "127.0.0.1", "--port", str(port), "--dashboard-address", "127.0.0.1:0"], {})
    for number in range(cluster["spec"]["worker"]["replicas"]):
        start("worker", [], {"DASK_WORKER_NAME": f"{name}-default-worker-{number}",
                             "DASK_SCHEDULER_ADDRESS": f"tcp://{service}"})
    state.write_text(json.dumps({"port": port, "pods": pods}))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with socket.socket() as reach:
            if reach.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
"""
)


def operator(tls: Tls | None = None) -> str:
    """The text of the stand-in for kubectl and the operator."""
    files = {} if tls is None else {"/tls/ca.crt": tls.ca, "/tls/tls.crt": tls.cert, "/tls/tls.key": tls.key}
    return OPERATOR.replace("{files}", repr({name: str(file) for name, file in files.items()}))


def pods_of(cluster: Kubernetes) -> list[dict[str, Any]]:
    """The pods of a manifest, of workers and scheduler."""
    spec = yaml.safe_load(render(cluster))["spec"]
    return [spec[part]["spec"] for part in ("worker", "scheduler")]


def applied_names(kubectl: Path) -> list[str]:
    """The names of the clusters in all manifests that a stand-in noted, without repetitions."""
    return list(
        dict.fromkeys(re.findall(r"^  name: (coremargin\S*)$", Path(f"{kubectl}.log").read_text(), re.MULTILINE))
    )


@pytest.mark.parametrize(
    "cluster",
    [
        FULL,
        Kubernetes(image="a", insecure=True),
        load_cluster(Path(__file__).parents[3] / "cluster" / "kubernetes.toml"),
    ],
    ids=["all keys", "defaults", "the file"],
)
def test_manifests_are_valid(cluster: Kubernetes) -> None:
    """By the schema of DaskCluster that the operator ships, and by the newest API's of pods and services, strictly."""
    validate = pytest.importorskip("kubernetes_validate")
    jsonschema = pytest.importorskip("jsonschema")
    shipped = importlib.util.find_spec("dask_kubernetes")
    if shipped is None or shipped.origin is None:
        pytest.skip("no dask-kubernetes on this machine")
    chart = Path(shipped.origin).parent / "operator" / "deployment" / "helm" / "dask-kubernetes-operator"
    schema = yaml.safe_load((chart / "crds" / "daskcluster.yaml").read_text())["spec"]["versions"][0]["schema"]
    found = yaml.safe_load(render(cluster))
    jsonschema.validate(found, schema["openAPIV3Schema"])
    known = schema["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert all(set(found["spec"][part]) <= set(known[part]["properties"]) for part in found["spec"])
    newest, meta = validate.latest_version(), {"name": "pod", "annotations": found["metadata"].get("annotations", {})}
    for part in ("worker", "scheduler"):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": found["spec"][part]["spec"]}
        validate.validate(pod, newest, strict=True)
        with pytest.raises(validate.ValidationError):
            validate.validate(pod | {"spec": pod["spec"] | {"tolerations": {}}}, newest, strict=True)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    validate.validate(service | {"spec": found["spec"]["scheduler"]["service"]}, newest, strict=True)


def test_all_pods_have_what_the_file_says() -> None:
    """Account, secrets, nodes and tolerations are those of workers and scheduler; annotations those of the cluster."""
    for pod in pods_of(FULL):
        assert pod["serviceAccountName"] == "runner"
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["nodeSelector"] == {"kubernetes.io/arch": "amd64", "pool": ""}
        assert pod["tolerations"] == [
            {"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"},
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 60,
            },
            {"operator": "Exists"},
        ]
        (container,) = pod["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": name}} for name in ("bucket-keys", "more.keys")]
        assert {"name": "TOKENIZERS_PARALLELISM", "value": "false"} in container["env"]
    assert yaml.safe_load(render(FULL))["metadata"]["annotations"] == FULL.annotations
    assert specs.parse(specs.dump(FULL), ClusterSpec) == FULL  # type: ignore[arg-type]


def test_the_file_has_all_keys() -> None:
    """cluster/kubernetes.toml names every key, and the commented ones are valid, too."""
    text = FILE.read_text()
    keys = set(re.findall(r"^(?:# )?(\w+) = ", text, re.MULTILINE))
    assert keys == {"kind", *Kubernetes.__struct_fields__, *Tls.__struct_fields__} - {"tls"}
    assert all(name in text for name in Toleration.__struct_fields__)
    cluster = specs.parse(re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE), ClusterSpec)  # type: ignore[arg-type]
    assert isinstance(cluster, Kubernetes)
    assert (cluster.service_account, cluster.env_from) == ("coremargin", ("bucket-keys",))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("memory = 4", 'memory: not a size with a unit: 4; write "4 GiB", or "4 B" for bytes'),
        ('memory = "0 GiB"', "memory: expected at least 1 MiB, found 0 B"),
        ('tls_secret = "s"', "need each other"),
        ('name = "1a"', "name: expected at most 44"),
        (f'name = "{"a" * 45}"', "name: expected at most 44"),
        ('service_account = "A"', "service_account: expected the name of an object"),
        ('service_acount = "a"', "unknown key 'service_acount'; did you mean 'service_account'"),
        ("env_from = [{ KEY = 1 }]", "env_from"),
        ('env_from = ["s", "KEY=value"]', "env_from.: #2: expected the name of an object"),
        ('env_from = "bucket-keys"', "env_from: expected a list"),
        ('node_selector = { "two words" = "a" }', "node_selector"),
        ("annotations = { a = 3 }", "annotations: expected str"),
        ('tolerations = [{ key = "a" }]', "tolerations #1: give key and value, or operator"),
        (
            'tolerations = [{ operator = "Exists" }, { kye = "a" }]',
            "tolerations #2.: unknown key 'kye'; did you mean 'key'",
        ),
        ('tolerations = [{ operator = "Exists", value = "a" }]', "tolerations #1: .*remove value"),
        ('tolerations = [{ operator = "Exists", effect = "NoRun" }]', "effect: invalid enum value 'NoRun'"),
        ('tolerations = [{ operator = "Exists", toleration_seconds = 3 }]', 'needs effect = "NoExecute"'),
        ('environment = { AWS_SECRET_ACCESS_KEY = "planted" }', "AWS_SECRET_ACCESS_KEY looks like .* into env_from"),
        (
            'environment = { AWS_SECRET_ACCESS_KEY = "planted", A = 3 }',
            "AWS_SECRET_ACCESS_KEY looks like .* into env_from",
        ),
        ('environment = { API_KEY = "planted\\nplanted" }', "API_KEY looks like a credential"),
        ('environment = { AWS_ACCESS_KEY_ID = "planted" }', "AWS_ACCESS_KEY_ID looks like a credential"),
        ('environment = { AZURE_STORAGE_CONNECTION_STRING = "planted" }', "CONNECTION_STRING looks like a credential"),
        ('environment = { hf_token = "planted" }', "hf_token looks like a credential"),
        ('environment = { TOKEN = "planted" }', "TOKEN looks like a credential"),
        ('environment = { "A B" = "planted" }', "environment: expected text without spaces and quotes; .*not shown"),
        ('environment = { A = ["planted"] }', "environment: expected str, got a list; .*not shown"),
        ('environment = ["AWS_SECRET_ACCESS_KEY=planted"]', "environment: expected a table, got a list; .*not shown"),
        ('env_from = ["bucket-keys", "plantedKEY+/="]', "env_from.: #2: expected the name of an object .*not shown"),
        ('env_from = { KEY = "planted" }', "env_from: expected a list, got a table; .*not shown"),
        ('env_from = "planted"', "env_from: expected a list, got str; .*not shown"),
        ('image_pull_secrets = ["registry:planted"]', "image_pull_secrets.: #1: expected the name .*not shown"),
        ('node_selector = { "a b" = "c" }', "node_selector: expected a key of Kubernetes: .*; found {'a b': 'c'}"),
        ('node_selector = { a = "b c" }', "node_selector: expected a value of Kubernetes: .*; found {'a': 'b c'}"),
        ('name = "Coremargin"', "name: expected at most 44 lower-case letters, .*; found 'Coremargin'"),
    ],
)
def test_mistakes_are_refused(line: str, message: str, tmp_path: Path) -> None:
    """By a message with file and key, in which no value of a credential appears."""
    file = tmp_path / "bad.toml"
    file.write_text(f'kind = "kubernetes"\nimage = "a"\ninsecure = true\n{line}\n')
    with pytest.raises(SpecError, match=message) as caught:
        load_cluster(file)
    assert str(file) in str(caught.value)
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["TOKENIZERS_PARALLELISM", "MAX_TOKEN_LENGTH", "GOOGLE_APPLICATION_CREDENTIALS", "SAS_HOME"],
)
def test_other_variables_are_no_credentials(name: str, tmp_path: Path) -> None:
    """Names that only resemble those of credentials, or of files with them, are variables like others."""
    file = tmp_path / "good.toml"
    file.write_text(f'kind = "kubernetes"\nimage = "a"\ninsecure = true\nenvironment = {{ {name} = "/x" }}\n')
    cluster = load_cluster(file)
    assert isinstance(cluster, Kubernetes)
    assert cluster.environment == {name: "/x"}


def test_kubernetes_applies_the_manifest_and_forwards_a_port(command: Command, embedded: Executor) -> None:
    """The manifest is applied, the scheduler reached through a forwarded port, the resource deleted in the end."""
    port = embedded.client.scheduler.address.rpartition(":")[2]
    forward = f"print('Forwarding from 127.0.0.1:{port} -> 8786', flush=True); import time; time.sleep(600)"
    text = f"{TEXT}\nif 'port-forward' in sys.argv:\n    {forward}\nelse:\n    log.open('a').write(sys.stdin.read())\n"
    kubectl = command("kubectl", text)
    spec = Kubernetes(image="coremargin:test", insecure=True, namespace="lab")
    with connect(spec) as executor:
        scans(executor)
        description = executor.description
    said = Path(f"{kubectl}.log").read_text()
    (name,) = applied_names(kubectl)
    assert re.fullmatch(r"coremargin-[0-9a-f]{8}", name)
    assert description.endswith(f"lab/{name}") or f"lab/{name}," in description
    text = render(structs.replace(spec, name=name))
    assert f"apply -f -\n{text}-n lab port-forward service/{name}-scheduler :8786" in said
    assert said.endswith(f"delete --ignore-not-found --wait=false -f -\n{text}")


@pytest.mark.specimens(1)
@pytest.mark.parametrize("says", ["", "print('Unable to connect to the server', flush=True); "])
def test_a_kubectl_that_hangs_does_not_hold_the_job(command: Command, says: str) -> None:
    """A port-forward that never says where it leads is ended at ``start_timeout``, and the manifest deleted."""
    text = f"{TEXT}\nif 'port-forward' in sys.argv:\n    {says}import time; time.sleep(600)\n"
    kubectl = command("kubectl", text)
    with pytest.raises(
        RunError, match="pod is not there after 0.50 s: " + ("Unable to connect" if says else "kubectl ")
    ):
        connect(Kubernetes(image="coremargin:test", insecure=True, start_timeout=specs.Seconds(0.5)))
    assert Path(f"{kubectl}.log").read_text().splitlines()[-1] == "delete --ignore-not-found --wait=false -f -"


@pytest.mark.slow
def test_a_forwarded_port_that_leads_nowhere_has_the_words_of_kubectl(command: Command) -> None:
    """When nobody answers behind the port because the port-forward is gone, its end is a note on the error."""
    says = "print('Forwarding from 127.0.0.1:1 -> 8786', flush=True); sys.exit('pod not found')"
    command("kubectl", f"{TEXT}\nif 'port-forward' in sys.argv: {says}\n")
    with pytest.raises(RunError, match="no Dask scheduler answers at tcp://127.0.0.1:1") as caught:
        connect(Kubernetes(image="coremargin:test", insecure=True, start_timeout=specs.Seconds(3)))
    assert caught.value.__notes__ == ["kubectl port-forward ended with status 1: pod not found"]


@pytest.mark.slow
def test_a_forwarded_port_that_closes_is_noticed(command: Command) -> None:
    """When the port-forward ends before there is a worker, the error says so, with its last line."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", silence_logs=50) as empty:
        port = empty.scheduler_address.rpartition(":")[2]
        says = f"print('Forwarding from 127.0.0.1:{port} -> 8786', flush=True); time.sleep(1)"
        command("kubectl", f"{TEXT}\nimport time\nif 'port-forward' in sys.argv: {says}; sys.exit('lost connection')\n")
        spec = Kubernetes(image="coremargin:test", insecure=True, start_timeout=specs.Seconds(600))
        with pytest.raises(RunError, match="kubectl port-forward ended with status 1: lost connection; see that"):
            connect(spec)


@pytest.mark.parametrize("asked", [True, False], ids=["applied", "refused"])
def test_ctrl_c_while_a_manifest_is_applied_deletes_it(command: Command, asked: bool) -> None:
    """An interrupt while kubectl is at work waits for it; the cluster is deleted in any case."""
    interrupt = "os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5)" if asked else "sys.exit('forbidden')"
    text = f"{TEXT}\nimport os, signal, time\nif 'apply' in sys.argv: {interrupt}\nlog.open('a').write('done ')"
    kubectl = command("kubectl", text)
    with pytest.raises(KeyboardInterrupt if asked else RunError):
        connect(Kubernetes(image="coremargin:test", insecure=True))
    said = Path(f"{kubectl}.log").read_text()
    done = "done " if asked else ""
    assert said == f"apply -f -\n{done}delete --ignore-not-found --wait=false -f -\ndone "


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_an_apply_that_fails_is_rolled_back(command: Command, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the API server may have created is deleted, by the name that only this job has; the first error is told."""
    from coremargin.engine.clusters import processes

    monkeypatch.setattr(processes, "ANSWER_S", 3.0)
    end = "sys.exit('error: the connection was lost')" if how == "fails" else "import time; time.sleep(60)"
    kubectl = command("kubectl", f"{TEXT}log.open('a').write(sys.stdin.read())\nif 'apply' in sys.argv:\n    {end}\n")
    spec = Kubernetes(image="coremargin:test", insecure=True)
    with pytest.raises(RunError, match="connection was lost" if how == "fails" else "did not answer within 3.0"):
        connect(spec)
    (name,) = applied_names(kubectl)
    ran = [line for line in noted(kubectl) if line.endswith("-f -")]
    assert ran == ["apply -f -", "delete --ignore-not-found --wait=false -f -"]
    assert re.fullmatch(r"coremargin-[0-9a-f]{8}", name)


def test_what_could_not_be_deleted_is_named(command: Command, caplog: pytest.LogCaptureFixture) -> None:
    """If the roll-back fails, too, a warning says how to look for what may be left."""
    kubectl = command("kubectl", f"{TEXT}log.open('a').write(sys.stdin.read())\nsys.exit('no route to host')\n")
    with pytest.raises(RunError, match="^kubectl failed with status 1: no route to host$"):
        connect(Kubernetes(image="coremargin:test", insecure=True, namespace="lab"))
    (name,) = applied_names(kubectl)
    (warning,) = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert warning.endswith(
        f"no route to host; see whether it is still there: kubectl get daskclusters.kubernetes.dask.org {name} -n lab"
    )


@pytest.mark.slow
def test_two_jobs_with_one_cluster_file_do_not_share_pods(command: Command) -> None:
    """Each has a scheduler of its own, and the end of one leaves the other at work."""
    kubectl = command("kubectl", operator())
    spec = Kubernetes(image="coremargin:test", insecure=True, environment=here())
    with connect(spec) as first:
        with connect(spec) as second:
            assert first.client.scheduler.address != second.client.scheduler.address  # type: ignore[attr-defined]
            scans(second)
        scans(first)
        names = set(re.findall(r"service/(coremargin-[0-9a-f]{8})-scheduler", Path(f"{kubectl}.log").read_text()))
        assert len(names) == 2
        assert all(name in first.description + second.description for name in names)
    assert not list(kubectl.parent.glob("*.json"))


@pytest.mark.slow
def test_pods_talk_tls(command: Command, tmp_path: Path) -> None:
    """The commands and variables of the manifest connect workers, scheduler and driver by TLS."""
    tls = own_certificate(tmp_path)
    command("kubectl", operator(tls))
    spec = Kubernetes(image="coremargin:test", tls=tls, tls_secret="s", environment=here())  # noqa: S106 - a name
    with connect(spec) as executor:
        workers = executor.client.scheduler_info()["workers"]  # type: ignore[attr-defined]
        assert all(address.startswith("tls://") for address in workers)
        scans(executor)


@pytest.mark.parametrize(("pod", "children"), [("runs", False), ("pends", False), ("runs", True)])
def test_nothing_outlives_a_killed_driver(command: Command, tmp_path: Path, pod: str, children: bool) -> None:
    """After ``kill -9`` of the driver, the kubectl that forwards its port ends, and the cluster is deleted; also if the
    driver's children are killed first, as at a second Ctrl-C.
    """
    script = tmp_path / "driver.py"
    script.write_text(
        "from coremargin.engine.clusters.connect import connect\n"
        "from coremargin.engine.clusters.specs import Kubernetes\n"
        "connect(Kubernetes(image='coremargin:test', insecure=True, namespace='lab'))\n"
    )
    note = tmp_path / "pid"
    write = f"pathlib.Path('{note}.new').write_text(str(os.getpid())); os.rename('{note}.new', '{note}')"
    end = "time.sleep(600)" if pod == "runs" else "sys.exit('pod is not running. Current status=Pending')"
    kubectl = command(
        "kubectl",
        f"{TEXT}import os, time\nif 'apply' in sys.argv:\n    log.open('a').write(sys.stdin.read())\n"
        f"if 'port-forward' in sys.argv:\n    {write}; {end}\n",
    )
    forwarding: list[psutil.Process] = []
    with subprocess.Popen([sys.executable, script]) as driver:
        try:
            deadline = time.monotonic() + 120
            while not note.exists():
                assert driver.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            if pod == "runs":
                forward = psutil.Process(int(note.read_text()))
                shell = forward.parent()
                assert shell is not None
                assert shell.ppid() == driver.pid
                forwarding = [forward, shell]
            if children:
                for child in psutil.Process(driver.pid).children(recursive=True):
                    child.kill()
        finally:
            driver.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(forwarding, timeout=60)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
    (name,) = applied_names(kubectl)
    deletion = f"delete --ignore-not-found --wait=false daskclusters.kubernetes.dask.org {name} -n lab"
    while deletion not in noted(kubectl):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_cluster_that_was_closed_is_deleted_once(command: Command) -> None:
    """What deletes it after a killed driver ends with the cluster, and runs nothing."""
    before = {child.pid for child in psutil.Process().children()}
    kubectl = command("kubectl", f"{TEXT}if 'port-forward' in sys.argv: sys.exit('pending')\n")
    with pytest.raises(RunError, match="pod is not there"):
        connect(Kubernetes(image="coremargin:test", insecure=True, start_timeout=specs.Seconds(0.1)))
    assert {child.pid for child in psutil.Process().children()} == before
    time.sleep(0.5)
    assert sum("delete" in line for line in noted(kubectl)) == 1
