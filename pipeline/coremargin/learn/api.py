"""Training from Python: ``coremargin.train``."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec.structs import replace

from coremargin.argument_names import named_arguments
from coremargin.data.arrays import ArraySource
from coremargin.data.external_arrays import LazySource, at_once, is_lazy
from coremargin.data.labels import all_labels
from coremargin.data.source import Source, is_source
from coremargin.data.sources.names import with_label_name
from coremargin.data.sources.paths import local_source
from coremargin.data.store import Store
from coremargin.data.tables.objects import matrix_of
from coremargin.engine.checkpoint import NoCheckpoint
from coremargin.errors import UsageError
from coremargin.formats.local_path import local_path
from coremargin.learn.retrain import prepared, retrain_job_of
from coremargin.learn.tables import store_of
from coremargin.learn.train import (
    Begin,
    Progress,
    check_output,
    open_store,
    run_problem,
    train_job,
    with_memory,
)
from coremargin.models.executor import executor_of
from coremargin.models.function import Named
from coremargin.problems.registry import job_of, kind_of, own_parameters, problem_of, write_report
from coremargin.problems.resuming import with_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from coremargin.formats.choices import Loss, MapKind, ScalingKind, Strategy
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.outliers.kind import Search


@named_arguments()
def train(  # noqa: PLR0913 - rows, what belongs to them, the question and where to; all but one with a default
    source: Any,
    y: Any = None,
    *,
    weights: Any = None,
    columns: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    epsilon: float = 1e-3,
    intercept: bool = True,
    kernel: str | KernelFunction | None = None,
    gamma: Literal["scale"] | float | Sequence[Literal["scale"] | float] | NDArray[Any] | None = None,
    degree: int | None = None,
    coef0: float | None = None,
    kernel_error: float | None = None,
    loss: Loss | Literal["auto"] | None = None,
    C: float | Sequence[float] | NDArray[Any] | None = None,
    class_weight: Literal["balanced"] | Sequence[float] | None = None,
    classes: Literal["ovr", "crammer-singer"] | None = None,
    folds: int | None = None,
    fold_seed: int | None = None,
    outliers: int | str | Sequence[int] | NDArray[Any] | None = None,
    outlier_search: Search | None = None,
    strategy: Strategy | None = None,
    scaling: ScalingKind | None = None,
    map: MapKind | None = None,  # noqa: A002 - the job's word
    components: int | None = None,
    map_seed: int | None = None,
    memory: int | str | None = None,
    keep_for_retraining: int | str | None = None,
    sample: float = 0.04,
    block: int | str = 128 * 2**20,
    max_scans: int | None = None,
    time_limit: float | str | None = None,
    cluster: str | os.PathLike[str] | None = None,
    begin: Begin = "new",
    overwrite: bool = False,
    on_round: Callable[[dict[str, Any]], None] | None = None,
    **parameters: Any,
) -> AnyModel:
    """Train a maximum-margin classifier and prove it.

    Numbers may be NumPy's, lists of them arrays or ranges.

    Parameters
    ----------
    source : path-like, Store, Source, table, or array or sparse matrix of shape (n, d)
        The path of a store, a ``Store`` or other ``Source``, or rows with labels ``y``: an array in memory, a SciPy
        sparse matrix, or a Dask or Zarr array, which is read block by block, once more than a store to count what is in
        it. Files, tables and batches, all that ``ingest`` takes, become a store first; data frames of numbers only
        where y names a column or ``columns`` are said. It lies beside the model, rows.zarr beside rows.model, and
        without ``out`` with temporary files until the model is there. The model finds the columns of tables by their
        names, whatever their order; the index of a data frame is none of them.
    y : array_like of shape (n,), str or int, optional
        Labels of rows that are no store, or the name or number of the column that holds them; a store has its own.
    weights : array_like of shape (n,), str or int, optional
        Finite, not negative, not all zero; of tables also the name or number of a column; a store has its own.
    columns : mapping, optional
        What becomes of the columns of a table, in the words of ``ingest``: categorical, dates, text, missing, unknown,
        categories, date_format, drop; {} where there is nothing to say.
    out : path-like, optional
        Folder for the model, with a report and checkpoints on the way; None keeps the model in memory.
    epsilon : float, default 1e-3
        What may be missing of the best possible margin, as a share; with a loss, of its value. See ``TrainJob`` for
        this and all else that every job has.
    intercept : bool, default True
        False for a hyperplane through the origin of the (scaled) rows.
    kernel : {"rbf", "poly", "linear"}, callable or str, optional
        A function of a kernel in the place of the hyperplane (``KernelJob``), hard or with a loss; None: a hyperplane.
        A function k(X, Z) of one's own, or "module:function", gives rows (n, d) and (m, d) their values (n, m): a
        symmetric and positive semi-definite one, the same at each call, from several threads and processes at once.
    gamma : "scale", float or sequence of these, optional
        Of exp(-gamma ||x - z||^2) and (gamma x.z + coef0)^degree; None: "scale", 1 / (d var), as scikit-learn has it.
        Of several each has a machine, or a map and the models of its rows, with each C, from the same scans
        (``KernelFleetJob``, ``FleetJob``).
    degree : int, optional
        Of the polynomial; None: 3.
    coef0 : float, optional
        Of the polynomial, not below 0; None: 0.
    kernel_error : float, optional
        Of a function, what its values may be off by as a share of sqrt(k(x, x) k(z, z)), 1e-13 to 1e-3: what is proven
        holds for every positive semi-definite kernel that near. None: 1e-10.
    loss : {"hinge", "squared_hinge", "logistic", "auto"}, optional
        Of rows inside of the margin or on the wrong side (``SoftMarginJob``); None: a hard margin; "auto": that
        or, once it is proven that there is none, the squared hinge, by the same read (``HardOrSoftJob``). "logistic":
        log(1 + exp(-m)) of all rows (``LogisticJob``), for two classes and one C.
    C : float or sequence of float, optional
        Weight of a row's loss; of several each has a model, from the same scans (``FleetJob``). None: 1.0 with a loss;
        without one no other value is taken.
    class_weight : "balanced" or sequence of two float, optional
        Factors of C for the negative and the positive class; "balanced": n / (2 n_class).
    classes : {"ovr", "crammer-singer"}, optional
        "ovr" for one model a class, each against the rest, from the same scans (``FleetJob``); "crammer-singer" for one
        of all classes (``CrammerSingerJob``) [2]_.
    folds : int, optional
        Cross-validation by so many folds, in the same scans; chooses C and gamma (``FleetJob``, ``KernelFleetJob``).
    fold_seed : int, optional
        Which rows the folds have; None: 0.
    outliers : int, str or sequence of int, optional
        Rows that may be left out (``OutlierJob``): a number, a share such as "1%", or several numbers, also as "0..10".
    outlier_search : {"exact", "heuristic", "published", "published-simple"}, optional
        Proof, or margin and bound quickly; None: exact up to 1,000 outliers. The others are Figure 4 of [1]_, (a) and
        (b), with sharper constants, for a few dozen rows (``OutlierJob``).
    strategy : {"fast", "paper", "any-violator", "perceptron", "lp"}, optional
        Of a hard margin (``HardMarginJob``): "paper" is Figure 1 of [1]_, one example a scan; "any-violator" takes the
        first one found; "perceptron" passes over the rows until it makes no mistake; "lp" solves linear programs; None:
        "fast".
    scaling : {"standard", "minmax", "maxabs", "rownorm"}, optional
        Rows are scaled as they are read, from statistics of all of them; the model carries it.
    map : {"nystroem", "fourier", "polynomial"}, optional
        Rows are mapped as they are read, after scaling, to features whose products are about those of a kernel: the
        first two of exp(-gamma ||x - y||^2), by landmarks chosen among the rows or by random frequencies, the last of
        (gamma x.y + coef0)^degree. The model carries the map, and the certificate is about mapped rows.
    components : int, optional
        Features of a mapped row. Of a polynomial: None for all its products, else these sketch one that has more.
    map_seed : int, optional
        Which landmarks, frequencies or places a map has; None: 0.
    memory : int or str, optional
        Bytes for the rows in this process; text has a unit. None: a quarter of the memory that there is.
    keep_for_retraining : int or str, optional
        Most bytes kept beside the model so that ``retrain`` reads little, whatever time they take; 0: none. None: 64
        MiB, of what costs at most a tenth of the training's time.
    sample : float, default 0.04
        Share of the rows that is read first.
    block : int or str, default 128 MiB
        Bytes that one task reads; more of stores so large that a scan would have thousands of tasks.
    max_scans : int, optional
        Stop after so many scans, with what is proven.
    time_limit : float or str, optional
        Stop after so many seconds, or so long, such as "2 h", with what is proven.
    cluster : path-like, optional
        A file of ``cluster/``, a scheduler's address, "embedded" or "threads"; None chooses by size.
    begin : {"new", "resume", "restart"}, default "new"
        "resume" goes on where an interrupted run stopped, if there is one; "restart" throws its checkpoint away.
    overwrite : bool, default False
        Replace a model that is there.
    on_round : callable, optional
        Called with a record (a dict) after every round.
    **parameters
        Of kinds of problems that were added to those of coremargin, as their job files say them.

    Returns
    -------
    Model, FleetModel, MulticlassModel or KernelModel
        Ask its ``status`` and ``certificate`` what is proven. With classes "ovr", folds or several C it is a fleet,
        whose ``members`` have certificates each; with "crammer-singer" one model of several classes, as with a kernel.

    Raises
    ------
    CoremarginError
        By its class: UsageError for parameters, DataError for rows, RunError for all that is neither. That the proof
        which was asked for is not there is no error: it is what ``status`` says.

    See Also
    --------
    coremargin.verify : Checks the certificate of what was saved.
    coremargin.learn.published.outlier_svm : The published algorithms for outliers: every subset of a few dozen rows.

    References
    ----------
    .. [1] S. Har-Peled, D. Roth, D. Zimak, "Maximum Margin Coresets for Active and Noise Tolerant Learning", 2006.
    .. [2] K. Crammer, Y. Singer, "On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines", 2001.

    Examples
    --------
    >>> import coremargin
    >>> model = coremargin.train([[0.0], [1.0], [3.0], [4.0]], ["a", "a", "b", "b"])
    >>> model.status, model.w.tolist(), round(model.b, 9)
    ('certified', [1.0], -2.0)
    >>> model.predict([[1.5], [2.5]]).tolist()
    ['a', 'b']
    """
    if begin not in ("new", "resume", "restart"):
        raise UsageError(f"begin: expected 'new', 'resume' or 'restart', got {begin!r}")
    strange = sorted(parameters.keys() - own_parameters())
    if strange:
        raise TypeError(f"train() got an unexpected keyword argument {strange[0]!r}")
    parameters |= {
        "epsilon": epsilon,
        "intercept": intercept,
        "kernel": _word(kernel),
        "gamma": gamma,
        "degree": degree,
        "coef0": coef0,
        "kernel_error": kernel_error,
        "loss": loss,
        "C": C,
        "class_weight": class_weight,
        "classes": classes,
        "folds": folds,
        "fold_seed": fold_seed,
        "outliers": outliers,
        "outlier_search": outlier_search,
        "strategy": strategy,
        "scaling": scaling,
        "map": map,
        "components": components,
        "map_seed": map_seed,
        "memory": memory,
        "keep_for_retraining": keep_for_retraining,
        "sample": sample,
        "block": block,
        "max_scans": max_scans,
        "time_limit": time_limit,
    }
    spec = {"job": "train", "store": "rows", "out": os.fspath(local_path(out or "model")), **_plain(parameters)}
    asked = with_cluster(job_of(spec, where="coremargin.train"), cluster)
    place, source = None if out is None else local_path(out), local_source(source)
    progress = Progress(on_round=on_round) if on_round else Progress()
    if place is not None:
        check_output(asked, begin, overwrite=overwrite)  # before files are read for hours
    labelled = kind_of(asked).labelled
    making = store_of(source, y, weights, columns, place, begin, overwrite=overwrite, labelled=labelled)
    with making as (given, labels, weighed):
        rows = _source(given, labels, weighed, labelled=labelled)
        job = replace(asked, store=Path(rows.name))
        if out is not None:
            rows = open_store(job, begin) if isinstance(given, str | os.PathLike) else rows
            check_output(job, begin, overwrite=overwrite)
        with executor_of(rows, cluster) as executor:
            if out is None:
                job = with_memory(job)
                return run_problem(job, problem_of(job, rows), executor, NoCheckpoint(), progress).model
            report = partial(write_report, name=local_path(out).name)
            outcome = train_job(job, rows, executor, begin=begin, overwrite=overwrite, report=report, progress=progress)
            return outcome.model


@named_arguments()
def retrain(  # noqa: PLR0913 - a model, its rows and where to; all but two with a default
    model: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    kernel: KernelFunction | str | None = None,
    cluster: str | os.PathLike[str] | None = None,
    begin: Begin = "new",
    overwrite: bool = False,
    on_round: Callable[[dict[str, Any]], None] | None = None,
    **parameters: Any,
) -> AnyModel:
    """Make a model again for what its store holds now.

    The new model is trained by the parameters of the one before it, and its certificate is that of a model trained from
    nothing, of all rows. Only what is new is read, and of the rest what the change leaves unproven. Soft margins that
    took scans of rows that do not fit into memory, or have few rows for many features, columns scaled by all rows, and
    models without the file ``retraining.npz`` are trained from scratch.

    Parameters
    ----------
    model : path-like
        The folder of the model to go on from.
    store : path-like
        The store that it was trained on; since then rows were appended, or labels or weights have changed.
    out : path-like, optional
        Folder for the new model; None keeps it in memory.
    kernel : callable or str, optional
        The function that is the kernel of the model, where it is one, or "module:function".
    cluster : path-like, optional
        As for ``train``.
    begin : {"new", "resume", "restart"}, default "new"
        As for ``train``.
    overwrite : bool, default False
        Replace a model that is there, such as the one to go on from.
    on_round : callable, optional
        Called with a record (a dict) after every round.
    **parameters
        What may be said otherwise than before: epsilon, memory, keep_for_retraining, block, max_scans and time_limit,
        as for ``train``.

    Returns
    -------
    Model, FleetModel or MulticlassModel
        Ask its ``status`` and ``certificate`` what is proven.

    Raises
    ------
    CoremarginError
        By its class: UsageError for parameters, DataError for a model or store that does not fit, RunError for all that
        is neither.

    See Also
    --------
    coremargin.train : Makes a model from scratch.

    Examples
    --------
    >>> coremargin.ingest("tuesday.csv", "rows.zarr", label="class", append=True)  # doctest: +SKIP
    >>> coremargin.retrain("monday.model", "rows.zarr", out="tuesday.model")  # doctest: +SKIP
    """
    if begin not in ("new", "resume", "restart"):
        raise UsageError(f"begin: expected 'new', 'resume' or 'restart', got {begin!r}")
    spec = {
        "model": local_path(model),
        "store": local_path(store),
        "out": local_path(out or "model"),
        "kernel": _word(kernel),
        **_plain(parameters),
    }
    asked = with_cluster(retrain_job_of(spec, where="coremargin.retrain"), cluster)
    again = prepared(asked, begin)
    progress = Progress(on_round=on_round) if on_round else Progress()
    if out is None:
        job, rows = with_memory(again.job), Store.open(asked.store)
        with executor_of(rows, cluster) as executor:
            return run_problem(
                job, problem_of(job, rows, again.kept_maps), executor, NoCheckpoint(), progress, beginning=again
            ).model
    rows = open_store(again.job, begin)
    check_output(again.job, begin, overwrite=overwrite)
    with executor_of(rows, cluster) as executor:
        report = partial(write_report, name=local_path(out).name)
        outcome = train_job(
            again.job,
            rows,
            executor,
            begin=begin,
            overwrite=overwrite,
            report=report,
            progress=progress,
            beginning=again,
        )
        return outcome.model


def _word(kernel: Any) -> str | None:
    """The word for a kernel, which a function carries with it."""
    return kernel if kernel is None or isinstance(kernel, str) else Named.of(kernel)


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters with NumPy's numbers and arrays, and ranges, as numbers and lists: what job files can say."""
    return {name: _plain_value(value) for name, value in parameters.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain_value(one) for one in value] if isinstance(value, range | list | tuple) else value


def _source(source: Any, y: Any, weights: Any, *, labelled: bool) -> Source:
    if isinstance(source, str | os.PathLike) or is_source(source):
        if y is not None or weights is not None:
            what = "y" if y is not None else "weights"
            raise UsageError(f"{what}: a store has its own labels and weights; give {what} only with arrays")
        return Store.open(source) if isinstance(source, str | os.PathLike) else source
    if y is None and labelled:
        raise UsageError("y: expected labels for the rows, got none; or give the path of a store")
    labels = None if y is None else all_labels(at_once(y), "y")
    if is_lazy(source):
        if weights is not None:
            raise UsageError("weights: rows read block by block have none; ingest them into a store with their weights")
        return LazySource(source, labels)
    found = matrix_of(source, "X")
    rows, columns = (source, None) if found is None else (found[0], with_label_name(found[1], y))
    return ArraySource(rows, labels, weights=weights, columns=columns)
