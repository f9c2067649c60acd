"""Training from Python: ``coremargin.train``."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec.structs import replace

from coremargin.argument_names import named_arguments
from coremargin.data.arrays import ArraySource
from coremargin.data.external_arrays import LazySource, at_once, is_lazy
from coremargin.data.labels import all_labels
from coremargin.data.source import Source, is_source
from coremargin.data.sources.paths import is_path, resolve_paths
from coremargin.data.store import Store
from coremargin.data.tables.objects import matrix_of, with_label_name
from coremargin.errors import UsageError
from coremargin.formats.location import Location, last_name, location, with_storage_options
from coremargin.learn.retrain import prepare_retraining, retrain_job_of
from coremargin.learn.tables import store_of
from coremargin.learn.train import (
    Progress,
    check_output,
    open_store,
    set_default_memory,
    train_in_memory,
    train_job,
)
from coremargin.models.executor import executor_of
from coremargin.models.function import Named
from coremargin.problems.registry import job_of, kind_of, own_parameters, write_report
from coremargin.problems.resuming import with_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from coremargin.engine.checkpoint import Begin
    from coremargin.engine.clusters.specs import Cluster
    from coremargin.formats.choices import Centre, ChooseBy, ErrorPick, Loss, MapKind, ScalingKind, Strategy
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.outliers.kind import Search


@named_arguments()
def train(  # noqa: PLR0913 - rows, what belongs to them, the question and where to; all but one with a default
    source: Any,
    y: Any = None,
    *,
    weights: Any = None,
    groups: Any = None,
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
    relative_margin: float | None = None,
    classes: Literal["ovr", "crammer-singer"] | None = None,
    folds: int | None = None,
    fold_seed: int | None = None,
    choose: ChooseBy | None = None,
    outliers: int | str | Sequence[int] | NDArray[Any] | None = None,
    outlier_search: Search | None = None,
    one_class: Literal["ball", "ellipsoid"] | None = None,
    only: str | int | float | bool | None = None,
    nu: float | None = None,
    structure: Any = None,
    costs: str | os.PathLike[str] | None = None,
    taxonomy: str | os.PathLike[str] | None = None,
    ordinal: bool | None = None,
    strategy: Strategy | None = None,
    centre: Centre | None = None,
    pick: ErrorPick | None = None,
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
    cluster: Cluster = None,
    begin: Begin = "new",
    overwrite: bool = False,
    storage_options: Mapping[str, str] | None = None,
    on_round: Callable[[dict[str, Any]], None] | None = None,
    **parameters: Any,
) -> AnyModel:
    """Train a maximum-margin classifier, with a certificate.

    Numbers may be NumPy scalars; sequences may be arrays or ranges.

    Parameters
    ----------
    source : path-like, Store, Source, table, or array or sparse matrix of shape (n, d)
        A store or its path, or rows with labels ``y``: an array, a SciPy sparse matrix, or a Dask or Zarr array, which
        is read block by block (and once more to collect statistics). Files, tables and batches, as for ``ingest``, are
        ingested first: next to the model (rows.zarr for rows.model), or without ``out`` into a temporary folder. Data
        frames of numbers are ingested only if y names a column or ``columns`` is given. Models find columns of tables
        by name; the index of a data frame is not a column.
    y : array_like of shape (n,), str or int, optional
        Labels, or the name or number of the column with labels; None for a store, which has its own.
    weights : array_like of shape (n,), str or int, optional
        Sample weights: finite, not negative, not all zero; for tables also the name or number of a column. None for a
        store, which has its own.
    groups : array_like of shape (n,), str or int, optional
        Id of each row's group, such as a sequence or a query: texts or whole numbers; for tables also the name or
        number of a column, for SVMlight files "qid". Rows of a group come one after the other and have one weight. None
        for a store, which has its own.
    columns : mapping, optional
        Column options of ``ingest`` for tables: categorical, dates, text, missing, unknown, categories, date_format,
        drop; {} for the defaults.
    out : path-like, optional
        Folder for the model, its report and checkpoints; None: the model stays in memory. Or an address such as
        ``s3://bucket/rows.model``; checkpoints are then below ``~/.local/state/coremargin`` (``XDG_STATE_HOME``).
    epsilon : float, default 1e-3
        Relative gap between the bounds of the margin or, with a loss, of the objective; see ``TrainJob``.
    intercept : bool, default True
        False for a hyperplane through the origin of the (scaled) rows.
    kernel : {"rbf", "poly", "linear"}, callable or str, optional
        Kernel, for a hard margin or a loss (``KernelJob``); None: a hyperplane. A user-defined function k(X, Z), or
        "module:function", returns values (n, m) for rows (n, d) and (m, d). It must be symmetric, positive
        semi-definite and deterministic, and is called from several threads and processes at once.
    gamma : "scale", float or sequence of these, optional
        Of exp(-gamma ||x - z||^2) and (gamma x.z + coef0)^degree; None: "scale", 1 / (d var), as in scikit-learn.
        With several values, one model for each gamma and C is trained in the same scans (``KernelFleetJob``,
        ``FleetJob``).
    degree : int, optional
        Of the polynomial; None: 3.
    coef0 : float, optional
        Of the polynomial, not negative; None: 0.
    kernel_error : float, optional
        Largest error of the values of a user-defined kernel, relative to sqrt(k(x, x) k(z, z)), 1e-13 to 1e-3. The
        certificate holds for all positive semi-definite kernels within this error. None: 1e-10.
    loss : {"hinge", "squared_hinge", "logistic", "auto"}, optional
        Of rows within the margin or on the wrong side (``SoftMarginJob``); None: hard margin; "auto": hard margin or,
        once it is proven that none exists, the squared hinge, in the same read (``HardOrSoftJob``). "logistic":
        log(1 + exp(-m)) of all rows (``LogisticJob``), for two classes and one C.
    C : float or sequence of float, optional
        Factor of the loss; with several values, one model for each is trained in the same scans (``FleetJob``). None:
        1.0; only with a loss.
    class_weight : "balanced" or sequence of two float, optional
        Factors of C for the negative and the positive class; "balanced": n / (2 n_class).
    relative_margin : float, optional
        With loss "hinge", a bound B above 1 of the decision values of all rows (``RelativeMarginJob``): the margin is
        large relative to the spread of the rows [3]_. Without a kernel for two classes and one C. None: no bound.
    classes : {"ovr", "crammer-singer"}, optional
        "ovr": one model for each class against the rest, trained in the same scans (``FleetJob``); "crammer-singer":
        one problem for all classes (``CrammerSingerJob``) [2]_.
    folds : int, optional
        Folds of a cross-validation in the same scans, which selects C and gamma (``FleetJob``, ``KernelFleetJob``).
    fold_seed : int, optional
        Seed of the assignment of rows to folds; None: 0.
    choose : {"validation", "risk"}, optional
        What selects C and gamma: accuracy on held-out rows of ``folds``, or the least guaranteed risk, a bound on the
        error on new rows, of two classes with a loss (``FleetJob``, ``KernelFleetJob``). None: "validation" with folds.
    outliers : int, str or sequence of int, optional
        Rows that may be excluded (``OutlierJob``): a number, a share such as "1%", or several numbers, also as "0..10".
        With ``one_class`` (``BallJob``), ``kernel`` (``KernelJob``) and ``classes="crammer-singer"``
        (``CrammerSingerJob``) a number or a share.
    outlier_search : {"exact", "heuristic", "published", "published-simple"}, optional
        "exact" proves the best exclusion, "heuristic" gives a margin and a bound quickly; None: exact up to 1,000
        outliers. "published" and "published-simple" are Figure 4 (a) and (b) of [1]_ with sharper constants, for a few
        dozen rows (``OutlierJob``).
    one_class : {"ball", "ellipsoid"}, optional
        Enclose rows instead of separating classes: "ball" is the smallest ball that contains them (``BallJob``),
        "ellipsoid" the ellipsoid of least volume (``EllipsoidJob``). Rows need no labels. With ``kernel``, a ball is
        the smallest in the kernel's feature space (``KernelBallJob``).
    only : label, optional
        With ``one_class``, enclose the rows with this label only; None: all rows.
    nu : float, optional
        With ``one_class``, the share of the rows that may lie outside, above 0 and below 1 (``SoftBallJob``,
        ``SoftEllipsoidJob``); None: none may.
    structure : {"chain", "outputs", "ranking"}, class, object or str, optional
        With loss "hinge", labels of rows that depend on each other (``StructuredJob``): "chain", sequences, which are
        ``groups`` of rows; "outputs", single rows whose wrong labels have costs [5]_; or a structure of your own, or
        "module:Name", with the methods size, joint, argmax and loss. Or scores (``RankingJob``): "ranking" puts the
        rows of each group in the order of their labels, numbers of which the larger come first. None: other problems.
    costs : path-like, optional
        With ``structure``, a CSV file with the cost of each label (columns) in the place of a true one (lines). None:
        1 for each wrong label.
    taxonomy : path-like, optional
        With ``structure``, a CSV file with a node and the node above it in each line, whose leaves are the labels; a
        label costs half of the edges between it and the true one.
    ordinal : bool, optional
        With ``structure``, True: labels are numbers, and costs the differences between them. None: they are not.
    strategy : str, optional
        For hard margins (``HardMarginJob``, with ``kernel`` ``KernelJob``, with ``classes="crammer-singer"``, which has
        "paper" and "any-violator", ``CrammerSingerJob``): "fast", or a published algorithm, such as
        "paper", Figure 1 of [1]_, with one new row per scan; all end with the same certificate. The guide lists them.
        None: "fast".
    centre : {"perceptron", "chebyshev", "analytic", "ep", "hit-and-run", "billiard", "dikin", "permutations"}, optional
        Query point of strategy "cutting-planes"; None: "perceptron".
    pick : {"largest", "smallest", "random"}, optional
        Error of the row that becomes the next of these planes; None: "largest".
    scaling : {"standard", "minmax", "maxabs", "rownorm", "ellipsoid"}, optional
        Scale rows as they are read, with statistics of the store; part of the model. "ellipsoid": rows in the metric of
        the ellipsoid of least volume around them, which takes a read before; an ellipsoidal machine [4]_.
    map : {"nystroem", "fourier", "polynomial"}, optional
        Feature map that approximates a kernel, applied to rows as they are read, after scaling. "nystroem" (landmarks
        from the rows) and "fourier" (random frequencies) approximate exp(-gamma ||x - y||^2), "polynomial" is
        (gamma x.y + coef0)^degree. The map is part of the model, and the certificate is about mapped rows.
    components : int, optional
        Features of a mapped row; None for a polynomial: the exact map. Fewer features are a sketch of it.
    map_seed : int, optional
        Seed of landmarks, frequencies or sketches; None: 0.
    memory : int or str, optional
        Bytes for rows in this process, or text with a unit. None: a quarter of the available memory.
    keep_for_retraining : int or str, optional
        Most bytes of warm-start state for ``retrain``, however long it takes to compute; 0: none. None: 64 MiB, if it
        takes at most a tenth of the time of the training.
    sample : float, default 0.04
        Share of the rows that is read first.
    block : int or str, default 128 MiB
        Bytes that a task reads; more for stores that would need thousands of tasks.
    max_scans : int, optional
        Stop after so many scans, with the bounds reached.
    time_limit : float or str, optional
        Stop after so many seconds, or after a time such as "2 h", with the bounds reached.
    cluster : path-like or Dask Client, optional
        A file of ``cluster/``, the address of a scheduler, a running Dask ``Client`` (which stays open), "embedded" or
        "threads"; None: chosen by the size of the store.
    begin : {"new", "resume", "restart"}, default "new"
        "resume" continues an interrupted run, if there is one; "restart" discards its checkpoint.
    overwrite : bool, default False
        Replace an existing model.
    storage_options : mapping, optional
        Options of the addresses of a store, of files and of a model in object storage, as for ``Store.open``.
    on_round : callable, optional
        Called with the record of each round (a dict).
    **parameters
        Parameters of kinds of problems from other packages, as in their job files.

    Returns
    -------
    Model or one of its kin: FleetModel, KernelModel, StructuredModel, BallModel, EllipsoidModel and others
        ``status`` and ``certificate`` show what is proven. With classes "ovr", folds or several values of C a
        FleetModel, each of whose ``members`` has a certificate.

    Raises
    ------
    CoremarginError
        UsageError for parameters, DataError for rows, RunError otherwise. A model that does not reach epsilon is not
        an error; see ``status``.

    See Also
    --------
    coremargin.verify : Checks the certificate of a saved model.
    coremargin.learn.published.outlier_svm : Published algorithms for outliers, for a few dozen rows.

    References
    ----------
    .. [1] S. Har-Peled, D. Roth, D. Zimak, "Maximum Margin Coresets for Active and Noise Tolerant Learning", 2006.
    .. [2] K. Crammer, Y. Singer, "On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines", 2001.
    .. [3] P. Shivaswamy, T. Jebara, "Maximum Relative Margin and Data-Dependent Regularization", 2010.
    .. [4] P. Shivaswamy, T. Jebara, "Ellipsoidal Kernel Machines", 2007.
    .. [5] I. Tsochantaridis, T. Joachims, T. Hofmann, Y. Altun, "Large Margin Methods for Structured and Interdependent
       Output Variables", 2005.

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
    unknown = sorted(parameters.keys() - own_parameters())
    if unknown:
        raise TypeError(f"train() got an unexpected keyword argument {unknown[0]!r}")
    parameters |= {
        "epsilon": epsilon,
        "intercept": intercept,
        "kernel": _kernel_name(kernel),
        "gamma": gamma,
        "degree": degree,
        "coef0": coef0,
        "kernel_error": kernel_error,
        "loss": loss,
        "C": C,
        "class_weight": class_weight,
        "relative_margin": relative_margin,
        "classes": classes,
        "folds": folds,
        "fold_seed": fold_seed,
        "choose": choose,
        "outliers": outliers,
        "outlier_search": outlier_search,
        "one_class": one_class,
        "only": only,
        "nu": nu,
        "structure": _structure_name(structure),
        "costs": costs,
        "taxonomy": taxonomy,
        "ordinal": ordinal,
        "strategy": strategy,
        "centre": centre,
        "pick": pick,
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
    paths = source if isinstance(source, list | tuple) and any(is_path(one) for one in source) else [source]
    *located, out = with_storage_options(storage_options, *paths, out)
    source = located if paths is source else located[0]
    spec = {
        "job": "train",
        "store": "rows",
        "out": location(out or "model"),
        **_as_plain_values(parameters),
    }
    job = with_cluster(job_of(spec, where="coremargin.train"), cluster)
    folder, source = None if out is None else job.out, resolve_paths(source)
    progress = Progress(on_round=on_round) if on_round else Progress()
    if folder is not None:
        check_output(job, begin, overwrite=overwrite)  # before files are ingested for hours
    labelled = kind_of(job).labelled
    own = {"groups": groups, "overwrite": overwrite, "labelled": labelled}
    with store_of(source, y, weights, columns, folder, begin, **own) as (rows_or_path, labels, row_weights):
        own_groups = groups if rows_or_path is source else None  # else the store has them
        rows = _open_source(rows_or_path, labels, row_weights, own_groups, labelled=labelled)
        job = replace(job, store=rows.name if isinstance(rows.name, Location) else Location(rows.name))
        if folder is not None:
            rows = open_store(job, begin) if isinstance(rows_or_path, str | os.PathLike) else rows
            check_output(job, begin, overwrite=overwrite)
        with executor_of(rows, cluster) as executor:
            if folder is None:
                job = set_default_memory(job)
                return train_in_memory(job, rows, executor, progress)
            report = partial(write_report, name=last_name(folder))
            outcome = train_job(job, rows, executor, begin=begin, overwrite=overwrite, report=report, progress=progress)
            return outcome.model


@named_arguments()
def retrain(  # noqa: PLR0913 - a model, its rows and where to; all but two with a default
    model: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    kernel: KernelFunction | str | None = None,
    cluster: Cluster = None,
    begin: Begin = "new",
    overwrite: bool = False,
    storage_options: Mapping[str, str] | None = None,
    on_round: Callable[[dict[str, Any]], None] | None = None,
    **parameters: Any,
) -> AnyModel:
    """Retrain a model on the newest commit of its store.

    The new model has the parameters of the earlier one, and the certificate of a model trained from scratch, over all
    rows. Only new and changed rows are read, and old rows where the change leaves something unproven. Some models are
    trained from scratch: those without warm-start state (``retraining.npz``) or with scaled columns, soft margins that
    took several scans of rows that do not fit in memory, and soft margins of few rows with many features.

    Parameters
    ----------
    model : path-like
        Folder or address of the earlier model.
    store : path-like
        The store that it was trained on, with rows appended or labels or weights changed since.
    out : path-like, optional
        Folder or address for the new model; None: it stays in memory.
    kernel : callable or str, optional
        User-defined kernel of the model, or "module:function".
    cluster : path-like or Dask Client, optional
        As for ``train``.
    begin : {"new", "resume", "restart"}, default "new"
        As for ``train``.
    overwrite : bool, default False
        Replace an existing model, such as the earlier one.
    storage_options : mapping, optional
        Options of addresses in object storage, as for ``Store.open``.
    on_round : callable, optional
        Called with the record of each round (a dict).
    **parameters
        Parameters that may change: epsilon, memory, keep_for_retraining, block, max_scans and time_limit, as for
        ``train``.

    Returns
    -------
    Model, FleetModel or KernelModel
        ``status`` and ``certificate`` show what is proven.

    Raises
    ------
    CoremarginError
        UsageError for parameters, DataError for a model or store that does not match, RunError otherwise.

    See Also
    --------
    coremargin.train : Trains a model from scratch.

    Examples
    --------
    >>> coremargin.ingest("tuesday.csv", "rows.zarr", label="class", append=True)  # doctest: +SKIP
    >>> coremargin.retrain("monday.model", "rows.zarr", out="tuesday.model")  # doctest: +SKIP
    """
    if begin not in ("new", "resume", "restart"):
        raise UsageError(f"begin: expected 'new', 'resume' or 'restart', got {begin!r}")
    earlier, rows_of, place = with_storage_options(storage_options, model, store, out or "model")
    spec = {
        "model": location(earlier),
        "store": location(rows_of),
        "out": location(place),
        "kernel": _kernel_name(kernel),
        **_as_plain_values(parameters),
    }
    retraining = prepare_retraining(with_cluster(retrain_job_of(spec, where="coremargin.retrain"), cluster), begin)
    progress = Progress(on_round=on_round) if on_round else Progress()
    if out is None:
        job, rows = set_default_memory(retraining.job), Store.open(retraining.job.store)
        with executor_of(rows, cluster) as executor:
            return train_in_memory(job, rows, executor, progress, retraining)
    rows = open_store(retraining.job, begin)
    check_output(retraining.job, begin, overwrite=overwrite)
    with executor_of(rows, cluster) as executor:
        report = partial(write_report, name=last_name(location(place)))
        outcome = train_job(
            retraining.job,
            rows,
            executor,
            begin=begin,
            overwrite=overwrite,
            report=report,
            progress=progress,
            retraining=retraining,
        )
        return outcome.model


def _kernel_name(kernel: Any) -> str | None:
    """The name of a kernel; ``Named`` is a string that carries the function."""
    return kernel if kernel is None or isinstance(kernel, str) else Named.of(kernel)


def _structure_name(structure: Any) -> str | None:
    return structure if structure is None or isinstance(structure, str) else Named.of_structure(structure)


def _as_plain_values(parameters: dict[str, Any]) -> dict[str, Any]:
    """NumPy scalars, arrays and ranges as numbers and lists, as in job files."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            return value.tolist()
        return [plain(one) for one in value] if isinstance(value, range | list | tuple) else value

    return {name: plain(value) for name, value in parameters.items()}


def _open_source(source: Any, y: Any, weights: Any, groups: Any, *, labelled: bool) -> Source:
    if isinstance(source, str | os.PathLike) or is_source(source):
        own = "labels and weights" if groups is None else "groups"
        for what, values in (("groups", groups), ("y", y), ("weights", weights)):
            if values is not None:
                raise UsageError(f"{what}: a store has its own {own}; pass {what} with arrays only")
        return Store.open(source) if isinstance(source, str | os.PathLike) else source
    if y is None and labelled:
        raise UsageError("y: expected labels of the rows, got none; or pass the path of a store")
    labels = None if y is None else all_labels(at_once(y), "y")
    if is_lazy(source):
        for what, values in (("weights", weights), ("groups", groups)):
            if values is not None:
                raise UsageError(
                    f"{what}: not supported for rows read block by block; ingest them into a store with their {what}"
                )
        return LazySource(source, labels)
    found = matrix_of(source, "X")
    rows, columns = (source, None) if found is None else (found[0], with_label_name(found[1], y))
    return ArraySource(rows, labels, weights=weights, groups=groups, columns=columns)
