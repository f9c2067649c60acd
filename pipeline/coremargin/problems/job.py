"""What all training jobs have in common: rows, where to put the model, how good it must be, what may be spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

from msgspec import Meta

from coremargin.engine.allowance import Allowance
from coremargin.engine.default_memory import default_memory
from coremargin.formats.choices import MapKind, ScalingKind
from coremargin.formats.limits import MOST_DEGREE, MOST_SEED
from coremargin.formats.map_asked import MOST_COMPONENTS, MapAsked
from coremargin.problems.maps import check_map_options, gamma_of
from coremargin.spec import Seconds, Size, Spec


class TrainJob(Spec, tag_field="job", tag="train", frozen=True, kw_only=True):
    """Train a maximum-margin model on a store and prove it; each kind of problem adds parameters of its own.

    epsilon: what may be missing of the best possible margin, as a share; with a loss, of its value. intercept: False
    for a hyperplane through the origin of the (scaled) rows: centred ones have it at their mean.
    scaling: rows are scaled as they are read, from the store's statistics of all its rows: "standard" (mean 0 and
    standard deviation 1 in every column), "minmax" (from 0 to 1), "maxabs" (within 1 of 0) or "rownorm" (every row of
    length 1). The proof is about the scaled rows, and the model carries the scaling.
    map: then rows are mapped, to features whose products are about those of a kernel: "nystroem" and "fourier" of
    exp(-gamma ||x - y||^2) by ``components`` landmarks or random frequencies, "polynomial" of (gamma x.y + coef0)
    ^ degree, exactly or, where that takes more features than ``components`` says, by a sketch. The proof is about the
    mapped rows, and the model carries the map.
    memory: for the rows in the driver; None: a quarter of what this process may have (``memory_bytes``).
    keep_for_retraining: bytes of what lies beside the model so that ``retrain`` reads little, at most; 0: nothing.
    None: 64 MiB, and only what costs the training no more than a tenth of its time (``Allowance``). sample: share
    of the store read first. block: bytes that one task reads, more of stores so large that a scan would have thousands
    of tasks.
    max_scans, time_limit: stop there, with what is proven. cluster: a file that says where to run; None chooses by the
    store's size.
    """

    EXACT: ClassVar[bool] = False  #: epsilon may be 0: as close as float64 can tell

    store: Path
    out: Annotated[Path, Meta(description="Folder of the model.")]
    epsilon: Annotated[float, Meta(description="Share of the best that may be missed.")] = 1e-3
    intercept: Annotated[bool, Meta(description="A hyperplane through the origin (of the scaled rows).")] = True
    scaling: Annotated[
        ScalingKind | None,
        Meta(description="Scale rows as they are read, from the store's statistics; the model keeps it."),
    ] = None
    map: Annotated[
        MapKind | None,
        Meta(description="Map rows as they are read, after scaling, to features of a kernel; the model keeps the map."),
    ] = None
    components: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_COMPONENTS)] | None,
        Meta(description="Features of a mapped row; a polynomial that has more is sketched by so many."),
    ] = None
    gamma: Annotated[
        float | Literal["scale"] | tuple[float | Literal["scale"], ...] | None,
        Meta(
            description="Of the kernel: scale is 1 / (features * variance of all values); several: a model each.  "
            "[default: scale]",
            extra={"metavar": "scale|NUMBER[,...]", "text": gamma_of},
        ),
    ] = None
    degree: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_DEGREE)] | None, Meta(description="Of a polynomial; 3 unless given.")
    ] = None
    coef0: Annotated[float | None, Meta(description="Added to a polynomial's products; 0 unless given.")] = None
    map_seed: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_SEED)] | None,
        Meta(description="Which landmarks, frequencies or places a map has; 0 unless given."),
    ] = None
    memory: Annotated[
        Size | None,
        Meta(description="For the rows kept in the driver.  [default: a quarter of the memory that there is]"),
    ] = None
    sample: Annotated[float, Meta(description="Share of the store that is read first.")] = 0.04
    keep_for_retraining: Annotated[
        Size | None,
        Meta(
            description="Most bytes kept beside the model for a later retraining, whatever time they take; 0: none.  "
            "[default: 64 MiB, of what costs at most a tenth of the training]"
        ),
    ] = None
    block: Annotated[Size, Meta(description="Bytes that one task reads.")] = Size(128 * 2**20)
    max_scans: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Stop after so many scans, with what is proven.")
    ] = None
    time_limit: Annotated[
        Seconds | None, Meta(description='Stop after so many seconds, or so long, such as "2 h", with what is proven.')
    ] = None
    cluster: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what is out of range, with the whole range; NaN is never in it. Raises ValueError."""
        if not (0 < self.epsilon < 1 or (self.EXACT and self.epsilon == 0)):
            raise ValueError(f"epsilon: expected a number between 0 and 1, both excluded; found {self.epsilon}")
        if not 0 < self.sample <= 1:
            raise ValueError(f"sample: expected a share above 0 and up to 1; found {self.sample}")
        self._check_map()
        for name in ("memory", "block"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ValueError(f"{name}: expected at least 1 byte; found {size}")

    def _check_map(self) -> None:
        """Refuse what is said of a map and does not go together. Raises ValueError."""
        check_map_options(self)
        if isinstance(self.gamma, tuple):
            raise ValueError(
                f"gamma: expected one, found {list(self.gamma)}: only of hard margins and of soft ones, be it of each "
                f"class against the rest (classes 'ovr'), there are models for several"
            )

    @property
    def gammas(self) -> tuple[float | str, ...]:
        """The values of gamma, said or not: "scale" first, then from small to large; of no meaning without a kernel."""
        given = "scale" if self.gamma is None else self.gamma
        found = given if isinstance(given, tuple) else (given,)
        return tuple(sorted(found, key=lambda one: 0.0 if isinstance(one, str) else one))

    @property
    def said_again(self) -> tuple[str, ...]:
        """Words that every command has to say again that runs the model: what no record is believed."""
        return ()

    @property
    def asked_maps(self) -> tuple[MapAsked, ...]:
        """What is asked of maps, said or not: of each gamma one, none without a map."""
        if self.map is None:
            return ()
        return tuple(
            MapAsked(
                map=self.map, components=self.components, gamma=cast("float | Literal['scale']", gamma),
                degree=3 if self.degree is None else self.degree, coef0=self.coef0 or 0.0, map_seed=self.map_seed or 0,
            )
            for gamma in self.gammas
        )  # fmt: skip

    @property
    def asked_map(self) -> MapAsked | None:
        """The first of these, which is all where there may be one gamma only; None without a map."""
        return self.asked_maps[0] if self.map is not None else None

    @property
    def memory_bytes(self) -> int:
        """What ``memory`` says, or a share of what there is now: a run asks once (``with_memory``), and keeps it."""
        return default_memory() if self.memory is None else int(self.memory)

    @property
    def allowance(self) -> Allowance:
        """What may be kept for retraining."""
        keep = self.keep_for_retraining
        return Allowance() if keep is None else Allowance(int(keep), requested=True)

    def parameters(self) -> dict[str, Any]:
        """What the model's record keeps: everything that decides about the result, nothing about the machine."""
        shared: dict[str, Any] = {"epsilon": self.epsilon, "intercept": self.intercept, "strategy": "fast"}
        if self.scaling is not None:  # models of rows as they are have no such key
            shared["scaling"] = self.scaling
        if self.asked_map is not None:
            shared |= self.asked_map.parameters()
        return shared

    def identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be of use, beside the rows and the kind."""
        sizes = {"memory": self.memory_bytes, "sample": self.sample, "block": int(self.block)}
        return {**self.parameters(), **sizes}
