"""The options that all training jobs share: the store, the model, the accuracy, scaling, maps and limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, cast

from msgspec import Meta

from coremargin.engine.allowance import Allowance
from coremargin.engine.clusters.specs import ClusterChoice
from coremargin.engine.default_memory import default_memory
from coremargin.formats.choices import ELLIPSOID_SCALING, MapKind, ScalingKind
from coremargin.formats.limits import GAMMAS, MOST_DEGREE, MOST_SEED
from coremargin.formats.location import Location
from coremargin.formats.map_asked import KEYS, MOST_COMPONENTS, MapAsked
from coremargin.spec import Seconds, Size, Spec

#: Options of maps that kernel machines have too.
_SHARED_WITH_KERNELS = ("gamma", "degree", "coef0")


def parse_gamma(text: str) -> float | str | list[float | str]:
    """Parse "scale", a number, or several separated by commas. Raises ValueError."""
    try:
        found = [word if word == "scale" else float(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"expected scale, a number above 0, or several as in 0.1,1; found {text!r}") from None
    return found if len(found) > 1 else found[0]


def check_map_options(job: Any) -> None:
    """Refuse options of a map without one, or of another map, and numbers out of range. Raises ValueError."""
    for name in ("components", "gamma", "degree", "coef0", "map_seed"):
        found = getattr(job, name)
        if found is None:
            continue
        if job.map is None:
            raise ValueError(
                f"{name}: only a map has it, found {found!r}; give map too: {', '.join(KEYS)}"
                f"{'; or kernel: it belongs to a machine with a kernel, too' if name in _SHARED_WITH_KERNELS else ''}"
            )
        if name not in KEYS[job.map]:
            raise ValueError(f"{name}: only a polynomial map has it, found {found!r}; map is {job.map!r}")
    if job.map in ("nystroem", "fourier") and job.components is None:
        raise ValueError(f"components: expected how many features mapped rows are to have, with map {job.map!r}")
    check_gammas(job.gammas)
    if job.coef0 is not None and not 0 <= job.coef0 <= GAMMAS[1]:
        raise ValueError(
            f"coef0: expected a number from 0 to {GAMMAS[1]:g}; found {job.coef0}: a polynomial of a negative one is "
            f"no product of mapped rows"
        )


def check_gammas(gammas: Sequence[str | float]) -> None:
    """Refuse values of gamma that are out of range, or given twice. Raises ValueError."""
    for gamma in gammas:
        if gamma != "scale" and not GAMMAS[0] <= float(gamma) <= GAMMAS[1]:
            raise ValueError(
                f"gamma: expected scale, or a number above 0, from {GAMMAS[0]:g} to {GAMMAS[1]:g}; found {gamma}"
            )
    if not gammas or len(set(gammas)) < len(gammas):
        raise ValueError(f"gamma: expected different numbers; found {list(gammas)}")


class TrainJob(Spec, tag_field="job", tag="train", frozen=True, kw_only=True):
    """Train a maximum-margin model on a store and prove it; each kind of problem adds options of its own.

    epsilon: the share of the best possible margin that may be missed; with a loss, of its value. intercept: False for a
    hyperplane through the origin of the (scaled) rows; after centring that is their mean.
    scaling: rows are scaled as they are read, by statistics of all rows of the store: "standard" (mean 0 and standard
    deviation 1 in every column), "minmax" (from 0 to 1), "maxabs" (absolute values up to 1) or "rownorm" (every row has
    length 1). "ellipsoid": rows in the metric of the ellipsoid of least volume around them, which takes a read before.
    The proof is about the scaled rows, and the model contains the scaling.
    map: scaled rows are mapped to features whose products approximate a kernel: "nystroem" and "fourier" for
    exp(-gamma ||x - y||^2), by ``components`` landmarks or random frequencies; "polynomial" for (gamma x.y + coef0)
    ^ degree, exactly or, if that takes more features than ``components``, by a sketch. The proof is about the mapped
    rows, and the model contains the map.
    memory: for rows in the driver; None: a quarter of the available memory (``memory_bytes``). keep_for_retraining: at
    most so many bytes are cached with the model, so that ``retrain`` reads little; 0: none. None: 64 MiB, and only what
    costs the training at most a tenth of its time (``Allowance``). sample: share of the store that is read first.
    block: bytes that one task reads; more for stores so large that a scan would have thousands of tasks.
    max_scans, time_limit: stop there, with what is proven. cluster: a file that says where to run; None chooses by the
    size of the store.
    """

    EXACT: ClassVar[bool] = False  #: whether epsilon may be 0: as close as float64 can tell
    HYPERPLANES: ClassVar[bool] = True  #: whether models consist of hyperplanes, which may have an intercept

    store: Location
    out: Annotated[Location, Meta(description="Folder of the model, or its address.")]
    epsilon: Annotated[
        float, Meta(description="Share of the best possible margin, or value of a loss, that may be missed.")
    ] = 1e-3
    intercept: Annotated[bool, Meta(description="A hyperplane through the origin (of the scaled rows).")] = True
    scaling: Annotated[
        ScalingKind | None,
        Meta(
            description="Scale rows as they are read, by the store's statistics; the model contains the scaling. "
            "ellipsoid: rows in the metric of their least ellipsoid, which takes a read before."
        ),
    ] = None
    map: Annotated[
        MapKind | None,
        Meta(description="Map scaled rows, as they are read, to features of a kernel; the model contains the map."),
    ] = None
    components: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_COMPONENTS)] | None,
        Meta(description="Features of a mapped row; a polynomial with more features is sketched by so many."),
    ] = None
    gamma: Annotated[
        float | Literal["scale"] | tuple[float | Literal["scale"], ...] | None,
        Meta(
            description="Of the kernel; scale: 1 / (features * variance of all values); several: a model each.  "
            "[default: scale]",
            extra={"metavar": "scale|NUMBER[,...]", "text": parse_gamma},
        ),
    ] = None
    degree: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_DEGREE)] | None, Meta(description="Degree of a polynomial.  [default: 3]")
    ] = None
    coef0: Annotated[float | None, Meta(description="Added to the products of a polynomial.  [default: 0]")] = None
    map_seed: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_SEED)] | None,
        Meta(description="Seed of the landmarks, frequencies or hashes of a map.  [default: 0]"),
    ] = None
    memory: Annotated[
        Size | None,
        Meta(description="For rows in the driver.  [default: a quarter of the available memory]"),
    ] = None
    sample: Annotated[float, Meta(description="Share of the store that is read first.")] = 0.04
    keep_for_retraining: Annotated[
        Size | None,
        Meta(
            description="Most bytes cached with the model for retraining, whatever time they take; 0: none.  "
            "[default: 64 MiB, within a tenth of the training time]"
        ),
    ] = None
    block: Annotated[Size, Meta(description="Bytes that one task reads.")] = Size(128 * 2**20)
    max_scans: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Stop after so many scans, with what is proven.")
    ] = None
    time_limit: Annotated[
        Seconds | None, Meta(description='Stop after so many seconds, or a time such as "2 h", with what is proven.')
    ] = None
    cluster: ClusterChoice | None = None

    def __post_init__(self) -> None:
        """Refuse values out of range, NaN among them. Raises ValueError."""
        if not (0 < self.epsilon < 1 or (self.EXACT and self.epsilon == 0)):
            raise ValueError(f"epsilon: expected a number between 0 and 1, both excluded; found {self.epsilon}")
        if not (self.intercept or self.HYPERPLANES):
            raise ValueError("intercept: only hyperplanes have one, found False; leave it out")
        if not 0 < self.sample <= 1:
            raise ValueError(f"sample: expected a share above 0 and up to 1; found {self.sample}")
        self._check_map()
        for name in ("memory", "block"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ValueError(f"{name}: expected at least 1 byte; found {size}")

    def _check_map(self) -> None:
        """Refuse options of maps that cannot be combined; kinds with several gammas override it. Raises ValueError."""
        check_map_options(self)
        if isinstance(self.gamma, tuple):
            raise ValueError(
                f"gamma: expected one, found {list(self.gamma)}: only hard and soft margins, of two classes or of each "
                f"class against the rest (classes 'ovr'), can be trained for several"
            )

    @property
    def gammas(self) -> tuple[float | str, ...]:
        """The values of gamma, "scale" first, then from small to large; without meaning unless there is a kernel."""
        given = "scale" if self.gamma is None else self.gamma
        found = given if isinstance(given, tuple) else (given,)
        return tuple(sorted(found, key=lambda one: 0.0 if isinstance(one, str) else one))

    @property
    def scaling_takes_read(self) -> bool:
        """Whether all rows are read to find out how they are scaled (learn/ellipsoid_scaling.py)."""
        return self.scaling == ELLIPSOID_SCALING

    @property
    def said_again(self) -> tuple[str, ...]:
        """Options to repeat in every command that runs the model, since records are not trusted with them."""
        return ()

    @property
    def asked_maps(self) -> tuple[MapAsked, ...]:
        """The requested maps with their defaults, one for each gamma; none without a map."""
        if self.map is None:
            return ()
        return tuple(
            MapAsked(
                map=self.map,
                components=self.components,
                gamma=cast("float | Literal['scale']", gamma),
                degree=3 if self.degree is None else self.degree,
                coef0=self.coef0 or 0.0,
                map_seed=self.map_seed or 0,
            )
            for gamma in self.gammas
        )

    @property
    def asked_map(self) -> MapAsked | None:
        """The first requested map, which is the only one unless there are several gammas; None without a map."""
        return self.asked_maps[0] if self.map is not None else None

    @property
    def memory_bytes(self) -> int:
        """``memory``, or a share of the memory available now: a run determines it once (``set_default_memory``)."""
        return default_memory() if self.memory is None else int(self.memory)

    @property
    def allowance(self) -> Allowance:
        """What may be cached for retraining."""
        keep = self.keep_for_retraining
        return Allowance() if keep is None else Allowance(int(keep), requested=True)

    def parameters(self) -> dict[str, Any]:
        """What the model's record keeps: everything that determines the result, nothing about the machine."""
        shared: dict[str, Any] = {"epsilon": self.epsilon}
        if self.HYPERPLANES:
            shared |= {"intercept": self.intercept, "strategy": "fast"}
        if self.scaling is not None:
            shared["scaling"] = self.scaling
        if self.asked_map is not None:
            shared |= self.asked_map.parameters()
        return shared

    def identity(self) -> dict[str, Any]:
        """What must be equal to resume from a checkpoint, besides the rows and the kind."""
        sizes = {"memory": self.memory_bytes, "sample": self.sample, "block": int(self.block)}
        return {**self.parameters(), **sizes}
