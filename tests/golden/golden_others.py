"""Jobs of the golden set that are more than one training: campaigns, nights, estimators, tables, smaller models, ..."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import coremargin
from coremargin.active import ActiveLearner, StreamLearner
from coremargin.estimators import KernelCoresetClassifier, MarginCoresetClassifier
from golden_data import DATA, Rows, linear, rings, table
from golden_kernels import laplacian
from golden_recorder import Record, digest

if TYPE_CHECKING:
    from record import Golden

Other = Callable[["Golden", Record], None]
OTHERS: dict[str, Other] = {}


def job(name: str) -> Callable[[Other], Other]:
    """Put a function among the jobs."""

    def put(function: Other) -> Other:
        OTHERS[name] = function
        return function

    return put


def campaign(data: str, words: list[str], changed: str, golden: Golden, record: Record) -> None:
    """Run a campaign whose answers are known, stopped and gone on with; verify, then what is asked for by letters.

    c by worker processes; f few answers; g grown, answered again and written into the store; m verified with one number
    changed.
    """
    rows, folder, store = DATA[data](), record.folder, record.folder / "rows.zarr"
    np.save(folder / "X.npy", rows.X)
    (folder / "labels.txt").write_text("".join(f"label-{label}\n" for label in rows.y))
    names = ",".join(f"label-{label}" for label in np.unique(rows.y))
    record.run("ingest", "ingest", folder / "X.npy", store, "--unlabelled", "--chunk-size", "2KiB")
    place = folder / "campaign"
    start = [
        "active",
        "start",
        store,
        "--out",
        place,
        "--classes",
        names,
        "--error",
        "0.1",
        "--memory",
        "4MiB",
        "--json",
    ]
    record.run("start", *start, *words)
    run = ["active", "run", place, "--oracle", folder / "labels.txt", "--batch", 3, "--json"]
    record.run("some", *run, "--most", 9)
    record.run("stop", "active", "stop", place, "--json")
    record.model("some/model", place / "model")
    most = ["--most", 25] if "f" in changed else []
    record.run("all", *run, *most, *(["--cluster", golden.cluster] if "c" in changed else []))
    said = [json.loads(line) for line in (place / "answers.jsonl").read_text().splitlines()]
    record["answers"] = [[line["row"], line["label"], line["action"], line["why"]] for line in said]
    record.run("status", "active", "status", place, "--json")
    record.model("model", place / "model")
    record.run("verify", "verify", place, store, "--json")
    if "m" in changed:
        record.mutations("forged", place / "model", store)
    if "g" in changed:
        record.run("append", "ingest", folder / "X.npy", store, "--unlabelled", "--append")
        record.run("grow", "active", "grow", place, "--json")
        (folder / "labels.txt").write_text("".join(f"label-{label}\n" for label in [*rows.y, *rows.y]))
        record.run("grown", *run)
        record.run("grown/verify", "verify", place, store, "--json")
        record.run("labels", "active", "labels", place, "--json")
        record.run("labels/info", "info", store, "--json")


#: name | data | letters | options of ``active start``
CAMPAIGNS = """
coreset     | apart       | cgm |
three       | wine        | gm  | --scaling standard
noisy       | noisy       | m   | --loss hinge --C 1
squared     | noisy       |     | --loss squared_hinge --C 1 --by-class
map         | rings-apart | m   | --map nystroem --components 20
stream      | apart       | f   | --method stream
slab        | apart       | f   | --method slab
random      | apart       | f   | --method random
chebyshev   | apart       | f   | --method chebyshev
ep          | apart       | f   | --method ep
hit-and-run | apart       | f   | --method hit-and-run
billiard    | apart       | f   | --method billiard
dikin       | apart       | f   | --method dikin
perceptron  | apart       | f   | --method perceptron
"""
for line in CAMPAIGNS.strip().splitlines():
    name, data, letters, options = (cell.strip() for cell in line.split("|"))
    OTHERS[f"campaign {name}"] = partial(campaign, data, options.split(), letters)


@job("learners")
def learners(golden: Golden, record: Record) -> None:
    """Rows in memory and rows of a stream that somebody labels."""
    rows = DATA["apart"]()
    learner = ActiveLearner(rows.X, classes=[0, 1], error=0.1)
    while len(ids := learner.query(5)[0]):
        record.setdefault("asked", []).extend(map(int, ids))
        learner.teach(ids, rows.y[ids].tolist())
    record.put(
        "learner", {"status": learner.status, "evidence": learner.evidence, "score": learner.score(rows.X, rows.y)}
    )
    record.update({"learner/w": digest(learner.model.w), "learner/b": learner.model.b})
    known = {row.tobytes(): int(label) for row, label in zip(rows.X.astype(float), rows.y, strict=True)}
    stream = StreamLearner(error=0.05)
    status = stream.learn(iter(rows.X.astype(float)), lambda row: known[np.asarray(row).tobytes()])
    record.put("stream", {"status": status, "evidence": stream.evidence})
    record["stream/predict"] = digest(stream.predict(rows.X.astype(float)))


@job("nights")
def nights(golden: Golden, record: Record) -> None:
    """Scheduled runs: nothing, rows, more rows, rows that a gate refuses, a broken file; then versions by hand."""
    folder, rng = record.folder, np.random.default_rng(9)
    (folder / "inbox").mkdir()

    def put(name: str, rows: int, share: float = 0.5) -> None:
        y = rng.random(rows) < share
        X = rng.standard_normal((rows, 2)) + np.where(y, 2.0, -2.0)[:, None]
        text = "x,z,paid\n" + "".join(
            f"{a:.6f},{b:.6f},{'yes' if one else 'no'}\n" for (a, b), one in zip(X, y, strict=True)
        )
        (folder / name).write_text(text)
        os.utime(folder / name, (1e9, 1e9))

    put("new.csv", 10)
    (folder / "nightly.toml").write_text(
        'job = "nightly"\nstore = "rows.zarr"\nregistry = "models"\n'
        '[ingest]\ninbox = "inbox"\nlabel = "paid"\nsettle = "1 s"\n'
        '[train]\nloss = "hinge"\nC = 0.1\nmemory = "1 GiB"\n[gates]\nclass_shares = { yes = [0.3, 0.7] }\n'
        '[predict]\nrows = "new.csv"\nout = "labels.csv"\n'
    )
    registry = folder / "models"
    for night, files in enumerate(
        [{}, {"day1.csv": 80}, {"day2.csv": 40, "day3.csv": 20}, {}, {"day4.csv": (120, 1.0)}]
    ):
        for name, rows in files.items():
            put(f"inbox/{name}", *(rows if isinstance(rows, tuple) else (rows,)))
        record.run(f"night-{night}", "run", folder / "nightly.toml", "--json")
        if (folder / "labels.csv").exists():
            record[f"night-{night}/labels"] = (folder / "labels.csv").read_text().splitlines()
    (folder / "inbox" / "bad.csv").write_text("x,z,paid\n1,2\n")
    os.utime(folder / "inbox" / "bad.csv", (1e9, 1e9))
    record.run("quarantine", "run", folder / "nightly.toml", "--json")
    record["quarantine/files"] = sorted(path.name for path in (folder / "inbox" / "quarantine").glob("*.csv"))
    for word in ("list", "log", "show", "diff"):
        more = {"show": ["champion"], "diff": [1, 2]}.get(word, [])
        record.run(word, "registry", word, registry, *more, "--json")
    record.run("rollback", "registry", "rollback", registry, "--json")
    record.run("promote", "registry", "promote", registry, 3, "--json")
    record.run("promote-forced", "registry", "promote", registry, 3, "--force", "--json")
    record.run("add", "registry", "add", registry, registry / "versions" / "000001", "--json")
    record.run("gc", "registry", "gc", registry, "--keep", 1, "--json")
    record.run("left", "registry", "list", registry, "--json")
    record.run("verify", "verify", f"{registry}@champion", folder / "rows.zarr", "--json")
    for version in sorted((registry / "versions").iterdir()):
        record.model(version.name, version)


def fitted(record: Record, step: str, machine: Any, X: Any) -> None:
    """What an estimator knows."""
    for name in ("coef_", "intercept_", "support_", "coreset_", "dual_coef_", "classes_", "n_iter_"):
        value = getattr(machine, name, None)
        if value is not None:
            record[f"{step}/{name}"] = digest(value.toarray() if hasattr(value, "toarray") else value)
    proofs = machine.certificate_
    for place, proof in enumerate(proofs if isinstance(proofs, list) else [proofs]):
        record.put(
            f"{step}/certificate/{place}",
            {name: getattr(proof, name) for name in ("lower", "upper", "ratio", "epsilon")},
        )
    record[f"{step}/decision"] = digest(machine.decision_function(X))
    record[f"{step}/predict"] = digest(machine.predict(X))


@job("estimators")
def estimators(golden: Golden, record: Record) -> None:
    """Both estimators, in memory, with weights, sparse rows, columns, and by batches."""
    two, several = DATA["noisy"](), DATA["three-noisy"]()
    ring = rings(150)
    linear_machine, kernel_machine = (
        partial(machine, memory="1GiB") for machine in (MarginCoresetClassifier, KernelCoresetClassifier)
    )
    cases = {
        "squared": (linear_machine(), two),
        "hinge": (linear_machine(loss="hinge", C=0.1), DATA["weighted"]()),
        "auto": (linear_machine(loss="auto"), two),
        "hard": (linear_machine(loss=None), DATA["apart"]()),
        "ovr": (linear_machine(C=0.1, class_weight="balanced"), several),
        "crammer-singer": (linear_machine(loss="hinge", multi_class="crammer_singer"), several),
        "map": (linear_machine(map="nystroem", n_components=10), ring),
        "sparse": (linear_machine(loss="hinge"), DATA["sparse"]()),
        "kernel": (kernel_machine(), ring),
        "kernel-ovr": (kernel_machine(loss="squared_hinge"), several),
        "kernel-own": (kernel_machine(kernel=laplacian, C=2.0), ring),
    }
    for name, (machine, rows) in cases.items():
        fitted(record, name, machine.fit(rows.X, rows.y, sample_weight=rows.weights), rows.X)
    for loss in ("hinge", "squared_hinge", None):
        rows = two if loss else DATA["apart"]()
        machine = linear_machine(loss=loss)
        for number, part in enumerate(np.array_split(np.arange(len(rows.y)), 4)):
            machine.partial_fit(rows.X[part], rows.y[part], classes=np.unique(rows.y))
            if number % 2:
                fitted(record, f"batches {loss} {number}", machine, rows.X)


@job("in memory")
def in_memory(golden: Golden, record: Record) -> None:
    """Training from arrays, saved; exported to scikit-learn and ONNX."""
    cases: dict[str, tuple[Rows, dict[str, Any]]] = {
        "hinge": (DATA["noisy"](), {"loss": "hinge", "scaling": "standard"}),
        "hard": (DATA["apart"](), {}),
        "kernel": (rings(150), {"kernel": "rbf", "loss": "hinge"}),
        "fleet": (DATA["noisy"](), {"loss": "hinge", "C": [0.1, 1.0], "folds": 2}),
    }
    for name, (rows, asked) in cases.items():
        X, model = rows.X, coremargin.train(rows.X, rows.y, memory="1GiB", **asked)
        model.save(record.folder / name)
        record.model(name, record.folder / name)
        record[f"{name}/decision"] = digest(model.decision_function(X))
        record[f"{name}/loaded"] = digest(coremargin.load(record.folder / name).decision_function(X))
        record[f"{name}/sklearn"] = digest(model.to_sklearn().decision_function(X))
        record.run(f"{name}/onnx", "export", record.folder / name, record.folder / f"{name}.onnx", "--json")


@job("reduced")
def reduced(golden: Golden, record: Record) -> None:
    """Smaller models of kernels, of one machine and of one of a fleet."""
    for name, words in {"one": "--C 1", "own": "--C 1", "fleet": "--gamma scale,1 --C 0.1,1 --folds 2"}.items():
        kernel = "golden_kernels:laplacian" if name == "own" else "rbf"
        own = ["--kernel", kernel] if name == "own" else []
        store, model, small = golden.store("rings"), record.folder / name, record.folder / f"{name}-small"
        asked = ["train", store, "--out", model, "--kernel", kernel, "--loss", "hinge", "--memory", "1GiB", "--json"]
        record.run(f"{name}/train", *asked, *words.split())
        record.run(f"{name}/reduce", "reduce", model, store, "--rows", 20, "--out", small, "--json", *own)
        record.run(f"{name}/verify", "verify", small, store, "--json", *own)
        record.model(f"{name}/model", small)
        record.mutations(f"{name}/forged", small, store, *own)


@job("materialised")
def materialised(golden: Golden, record: Record) -> None:
    """Mapped rows, written down and trained on."""
    store, model, mapped = golden.store("rings"), record.folder / "model", record.folder / "mapped.zarr"
    record.run(
        "train",
        "train",
        store,
        "--out",
        model,
        *["--map", "nystroem", "--components", "8", "--loss", "hinge", "--memory", "1GiB", "--json"],
    )
    record.run("materialise", "materialise", model, store, "--out", mapped, "--json")
    record.store("store", mapped)
    record.run(
        "again", "train", mapped, "--out", record.folder / "again", "--loss", "hinge", "--memory", "1GiB", "--json"
    )
    record.model("again/model", record.folder / "again")


@job("table")
def tables(golden: Golden, record: Record) -> None:
    """A table with words, dates, gaps and keys: ingested, trained on, predicted, changed by its keys, compacted."""
    folder, file = record.folder, record.folder / "visits.csv"
    file.write_text(table(300))
    store, model = folder / "visits.zarr", folder / "model"
    words = ["--label", "paid", "--key", "id", "--categorical", "auto", "--dates", "auto", "--missing", "median"]
    record.run("refused", "ingest", file, store)
    record.run("ingest", "ingest", file, store, *words, "--chunk-size", "4KiB")
    record.store("store", store)
    (folder / "weights.csv").write_text("id,weight\n1003,0\n1004,2.5\n")
    (folder / "labels.csv").write_text("id,label\n1007,yes\n1008,no\n")
    changed: dict[str, list[Any]] = {
        "remove": ["remove", store, "--key", 1001, "--key", 1002],
        "reweigh": ["reweigh", store, folder / "weights.csv"],
        "relabel": ["relabel", store, folder / "labels.csv"],
        "check": ["check", store],
        "compact": ["compact", store],
        "check-compact": ["check", store],
    }
    for step, command in changed.items():
        record.run(step, *command, "--json")
        record.store(f"{step}/store", store)
    train = ["train", store, "--out", model, "--loss", "hinge", "--scaling", "standard", "--memory", "1GiB", "--json"]
    record.run("train", *train)
    record.model("model", model)
    record.run("show", "show", model, "--json")
    record.run("coefficients", "coefficients", model, "--json")
    record.run("evaluate", "evaluate", model, file, "--json")
    record.run("predict", "predict", model, file, folder / "labels-predicted.csv", "--json")
    record["predicted"] = (folder / "labels-predicted.csv").read_text().splitlines()
    shutil.rmtree(model)
    record.run(
        "train-file",
        "train",
        file,
        "--out",
        model,
        *words[:2],
        "--drop",
        "id,since",
        *words[4:6],
        *words[8:],
        *train[4:],
    )
    record.model("file/model", model)


@job("formats")
def formats(golden: Golden, record: Record) -> None:
    """The same rows from files of other formats; files that are refused."""
    folder, rows = record.folder, linear(60, 3, margin=0.3)
    lines = [
        ",".join([*(f"{value:.7g}" for value in row), str(label)]) for row, label in zip(rows.X, rows.y, strict=True)
    ]
    svm = [
        f"{label} " + " ".join(f"{k + 1}:{value:.7g}" for k, value in enumerate(row))
        for row, label in zip(rows.X, rows.y, strict=True)
    ]
    files: dict[str, str] = {
        "a.csv": "p,q,r,class\n" + "\n".join(lines),
        "b.tsv": "\n".join(lines).replace(",", "\t"),
        "c.svm": "\n".join(svm),
        "ragged.csv": "p,q,class\n1,2,0\n3,1\n",
        "infinite.csv": "p,class\ninf,0\n1,1\n",
        "gaps.csv": "p,class\n,0\n1,1\n",
        "one-class.csv": "p,class\n2,0\n1,0\n",
    }
    np.savez(folder / "d.npz", X=rows.X, y=rows.y)
    for name, text in files.items():
        (folder / name).write_text(text)
    for name in [*files, "d.npz", "absent.csv"]:
        store = folder / f"{name}.zarr"
        record.run(f"{name}/ingest", "ingest", folder / name, store)
        if record[f"{name}/ingest/exit"] == 0:
            record.store(name, store)
            record.run(f"{name}/train", "train", store, "--out", folder / f"{name}.model", "--memory", "1GiB", "--json")
    damaged = folder / "a.csv.zarr" / "X"
    file = max(
        (path for path in damaged.rglob("*") if path.is_file() and path.name != "zarr.json"),
        key=lambda path: path.stat().st_size,
    )
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    file.write_bytes(content)
    for command in (["check", folder / "a.csv.zarr"], ["verify", folder / "a.csv.model", folder / "a.csv.zarr"]):
        record.run(f"damaged/{command[0]}", *command, "--json")


@job("job files")
def job_files(golden: Golden, record: Record) -> None:
    """Jobs that files describe: planned, run here and by worker processes, and what is refused."""
    store = golden.store("noisy")
    jobs: dict[str, Iterable[str]] = {
        "hinge": ['loss = "hinge"', "C = [0.1, 1.0]"],
        "kernel": ['kernel = "rbf"', 'loss = "hinge"'],
        "hard": [],
        "unknown-key": ["colour = 3"],
        "unknown-word": ['loss = "square"'],
        "contradiction": ["C = 2.0"],
    }
    for name, lines in jobs.items():
        file, out = record.folder / f"{name}.toml", record.folder / f"{name}.model"
        text = ['job = "train"', f'store = "{store}"', f'out = "{out}"', 'memory = "1 GiB"', *lines]
        file.write_text("\n".join(text) + "\n")
        record.run(f"{name}/plan", "plan", file, "--json")
        record.run(f"{name}/run", "run", file, "--json")
        record.run(f"{name}/again", "run", file, "--json")
        record.run(f"{name}/embedded", "run", file, "--json", "--overwrite", "--cluster", golden.embedded)
        if out.exists():
            record.model(f"{name}/model", out)
            record.run(f"{name}/demanded", "verify", out, store, "--epsilon", "1e-12", "--json")
            record.run(f"{name}/other", "verify", out, golden.store("weighted"), "--json")
