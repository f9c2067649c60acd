"""What a job says about a campaign whose answers come from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from coremargin.formats.choices import Hypothesis, Loss, Method, MultiClass
from coremargin.formats.limits import MOST_ROWS, MOST_SEED
from coremargin.formats.local_path import local_path
from coremargin.problems.job import TrainJob
from coremargin.problems.soft.spec import check_costs
from coremargin.spec import Size

AUTO: Literal["auto"] = "auto"  #: C is chosen by folds of the rows that are given as examples

SOFT: tuple[Method, ...] = ("coreset", "stream", "random")  #: methods that answers may contradict
AT_ONCE: tuple[Method, ...] = SOFT  #: methods that serve all classes at once
WITHOUT_CENTRE: tuple[Method, ...] = (*SOFT, "slab")


def cost_of(text: str) -> float | str:
    """A number, or the word auto. Raises ValueError."""
    try:
        return text if text == AUTO else float(text)
    except ValueError:
        raise ValueError(f"C: expected a number above 0, or auto; found {text!r}") from None


class ActiveJob(TrainJob, tag_field="job", tag="active", frozen=True, kw_only=True):
    """Few labels for many rows: those of the rows that are asked about, from a file; ``out`` is the campaign's folder.

    error, confidence: at most this share of the rows is labelled wrongly, and how sure that is to be; by_class: of the
    rows of each class that is predicted. loss, C, trial: answers may contradict each other; C "auto", a trial None and
    the gamma "scale" of a map are made numbers when the campaign begins, and the map is made then. batch: questions at
    a time. oracle: who answers; None: people do. classes: the labels, where they are known; examples: a file of answers
    that are there already, or a campaign. like: rows whose most similar ones are asked about first; when the campaign
    begins, these are found, and stand in its file.
    """

    epsilon: Annotated[float, Meta(description="Share of the best margin that may be missed.")] = 0.1
    # One number everywhere: few rows serve, and what is asked, and the hashes of the answers, depend on it.
    memory: Annotated[Size | None, Meta(description="For the rows in memory, of which questions are chosen.")] = Size(
        256 * 2**20
    )
    oracle: Path | None = None
    method: Annotated[
        Method,
        Meta(
            description="How rows are chosen: coreset the nearest to the hyperplane of the largest margin, stream the "
            "first within its slab, slab the nearest to one that is found by projections, random any; the others the "
            "nearest to a centre of all hyperplanes that agree with the answers: of the largest ball (chebyshev), of "
            "the logarithmic barrier (analytic), of the mass (ep, hit-and-run, billiard, dikin, permutations), or any "
            "(perceptron)."
        ),
    ] = "coreset"
    hypothesis: Annotated[
        Hypothesis,
        Meta(
            description="Hyperplane of the answered rows that the draws try and the model has: that of the largest "
            "margin, or the centre of the method (with ep and the like a Bayes point machine), as far as epsilon "
            "allows."
        ),
    ] = "margin"
    multi_class: Annotated[
        MultiClass,
        Meta(
            description="Hyperplanes of three classes or more: each class against the rest (ovr), or all at once, as "
            "in training with crammer-singer, which separates classes that lie between others."
        ),
    ] = "ovr"
    error: Annotated[float, Meta(description="Share of the rows that may be labelled wrongly.")] = 0.01
    confidence: Annotated[float, Meta(description="How sure that share is to be.")] = 0.99
    seed: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_SEED)], Meta(description="Of the rows that are drawn to try the model.")
    ] = 0
    by_class: Annotated[bool, Meta(description="That share is one of the rows of each class that is predicted.")] = (
        False
    )
    loss: Annotated[Loss | None, Meta(description="For answers that may contradict each other; C belongs to it.")] = (
        None
    )
    C: Annotated[
        float | Literal["auto"] | None,
        Meta(
            description="Weight of an answer's loss; auto: by folds of the rows given as examples.",
            extra={"metavar": "NUMBER|auto", "text": cost_of},
        ),
    ] = None
    trial: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_ROWS)] | None,
        Meta(description="With a loss: rows that are drawn to try the model; else by error and confidence."),
    ] = None
    batch: Annotated[Annotated[int, Meta(ge=1)], Meta(description="Questions at a time.")] = 1
    classes: list[str | int | float | bool] | None = None
    examples: Path | None = None
    like: list[Annotated[int, Meta(ge=0, le=MOST_ROWS)]] | None = None

    def __post_init__(self) -> None:
        """Refuse what is out of range, and what only jobs have that run in one go. Raises ValueError."""
        super().__post_init__()
        local_path(self.out)  # a campaign appends to its log
        for name, nothing in (("max_scans", None), ("time_limit", None), ("sample", 0.04)):
            if getattr(self, name) != nothing:
                raise ValueError(f"{name}: a campaign has none: interrupt it and continue later; leave it out")
        if self.keep_for_retraining is not None:
            raise ValueError("keep_for_retraining: the models of campaigns are not retrained; leave it out")
        if self.scaling == "ellipsoid":
            raise ValueError(
                "scaling: an ellipsoid takes a read of all rows before the first question, which campaigns do not "
                "make; choose another scaling, such as 'standard'"
            )
        for name in ("error", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(
                    f"{name}: expected a share between 0 and 1, both excluded; found {getattr(self, name)}"
                )
        self._check_loss()
        self._check_multi_class()
        if self.hypothesis == "centre" and self.method in WITHOUT_CENTRE:
            raise ValueError(f"hypothesis: the method {self.method!r} has no centre; choose another, such as 'ep'")

    def _check_multi_class(self) -> None:
        if self.multi_class == "ovr":
            return
        if self.classes is not None and len(self.classes) < 3:
            raise ValueError(
                f"multi_class: {self.multi_class!r} is for three classes or more, found {len(self.classes)}; name all "
                "classes, or leave multi_class out"
            )
        for name in ("loss", "map"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"multi_class: {self.multi_class!r} cannot be combined with {name}; leave one of them out"
                )
        if self.method not in AT_ONCE:
            raise ValueError(
                f"method: expected {', '.join(AT_ONCE[:-1])} or {AT_ONCE[-1]} with multi_class {self.multi_class!r}, "
                f"found {self.method!r}; choose another"
            )

    def _check_loss(self) -> None:
        if self.loss is None:
            for name in ("C", "trial"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name}: it belongs to a loss, found {getattr(self, name)!r}; give loss too")
        elif self.C is None:
            raise ValueError(
                f"C: expected a number above 0, or {AUTO!r}, with loss {self.loss!r}; found none; give one"
            )
        elif self.C != AUTO:
            check_costs([self.C])
        if self.loss is not None and self.method not in SOFT:
            raise ValueError(
                f"method: expected {', '.join(SOFT[:-1])} or {SOFT[-1]} with a loss, found {self.method!r}: it looks "
                "for hyperplanes that agree with all answers; choose another"
            )

    @property
    def cost(self) -> float | None:
        """C, once it is a number; None without a loss."""
        return None if self.C is None or self.C == AUTO else self.C

    def parameters(self) -> dict[str, Any]:
        """What the model's record keeps."""
        names = ("epsilon", "intercept", "method", "error", "confidence", "seed")
        known = {name: getattr(self, name) for name in names}
        more = {name: getattr(self, name) for name in ("scaling", "loss", "C", "trial")} | {
            "by_class": self.by_class or None,
            "hypothesis": "centre" if self.hypothesis == "centre" else None,
            "multi_class": None if self.multi_class == "ovr" else self.multi_class,
        }
        mapped = {} if self.asked_map is None else self.asked_map.parameters()
        return known | {name: value for name, value in more.items() if value is not None} | mapped
