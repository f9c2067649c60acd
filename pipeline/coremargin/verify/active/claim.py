"""The claims of a model of queried labels: the margin of few rows, the distance of others, and what draws show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from msgspec import UNSET

from coremargin.formats.current_answers import same
from coremargin.formats.draws import hypothesis_hash
from coremargin.formats.feature_map import PREFIX, map_digest
from coremargin.formats.map_asked import KEYS
from coremargin.formats.model_record import WHOLE
from coremargin.verify.claim import AnyClaim, Claim, any_claim, two_classes
from coremargin.verify.crammer_singer import ClassesClaim, last_entry

if TYPE_CHECKING:
    from coremargin.formats.active import Active, Evidence
    from coremargin.formats.active_classes import ActiveClasses
    from coremargin.formats.answers import Answers, Line, Vote
    from coremargin.formats.campaign import CampaignSettings
    from coremargin.formats.chained import Chain
    from coremargin.formats.model_files import ModelFiles

REST = "any other"  #: what stands for the classes that one stands against


@dataclass(frozen=True)
class Coded:
    """Rows and their classes: ids (n,) ascending, codes (n,), places of labels or -1."""

    ids: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, ids: np.ndarray, codes: np.ndarray) -> Coded:
        """Sort rows that come in any order."""
        order = np.argsort(ids, kind="stable")
        return cls(ids[order], codes[order].astype(np.int64))

    @classmethod
    def none(cls) -> Coded:
        """No rows."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))

    def take(self, which: np.ndarray) -> Coded:
        """The rows where a mask (n,) is true."""
        return Coded(self.ids[which], self.codes[which])

    def within(self, start: int, stop: int) -> Coded:
        """The rows in [start, stop), with numbers counted from ``start``."""
        a, b = np.searchsorted(self.ids, (start, stop))
        return Coded(self.ids[a:b] - start, self.codes[a:b])


@dataclass(frozen=True)
class History:
    """A campaign's folder: its settings, its log, and the votes if several people are asked about each row."""

    settings: CampaignSettings
    answers: Answers
    votes: Chain[Vote] | None = None

    def lines_up_to(self, last: int) -> tuple[Line, ...]:
        """The labels and states of rows after the log's first lines."""
        return tuple(line for line in self.answers.lines if line.number <= last)


@dataclass(frozen=True, kw_only=True)
class ActiveClaim(AnyClaim):
    """``method`` and so on as in the parameters; y: of a coreset row the place of its class, from 1.

    planes: the hyperplane between two classes; of more, one for each class, which it has on its positive side. at_once:
    the one margin of several classes, where each is not against the rest; the bounds of planes are its.
    """

    labels: tuple[Any, ...]
    planes: tuple[Claim, ...]
    at_once: ClassesClaim | None
    method: str
    error: float
    confidence: float
    seed: int
    by_class: bool
    centre: bool  #: the hyperplanes are said to be at the centre of the method
    loss: str  #: "" without one
    cost: float  #: C, 0 without a loss
    trial: int  #: draws of an attempt, of each stratum, 0 without a loss
    evidence: Evidence | None
    log: str | None
    answered: Coded  #: all rows with an answer, but for the draws
    draws_ids: np.ndarray  #: in the order drawn
    draws_codes: np.ndarray
    unsure: np.ndarray  #: rows that no annotator could label, ascending
    asked_map: Mapping[str, Any]  #: what rows are mapped by, nothing where they are not
    map_digest: str | None  #: of the arrays of the map
    inward: float = 0.0  #: how much more is asked of margins than is claimed: rows are mapped
    history: History | None = None  #: of the campaign whose model this is, where its folder was given
    later: Coded | None = None  #: rows answered after the line of the log that the model is about

    def tightened(self, more: float) -> Self:
        """The same claim with stronger bounds; if these hold, the claimed ones do."""
        return replace(self, inward=more)

    @cached_property
    def examined(self) -> tuple[Claim, ...]:
        """The hyperplanes, each with the bounds to check."""
        return tuple(plane.tightened(self.inward) if self.inward else plane for plane in self.planes)

    @property
    def bounded(self) -> tuple[AnyClaim, ...]:
        """What has bounds of its own: each hyperplane, or all at once."""
        return self.planes if self.at_once is None else (self.at_once,)

    @property
    def hash(self) -> str:
        """The hash of the hypothesis in the log."""
        planes = self.planes
        return hypothesis_hash(np.stack([plane.w for plane in planes]), np.array([plane.b for plane in planes]))

    @property
    def last_line(self) -> int | None:
        """The number of lines of the log that the model knows; None without a log, or if the log is shorter."""
        hashes = () if self.history is None else self.history.answers.hashes
        return hashes.index(self.log) + 1 if self.log in hashes else None

    @property
    def known_lines(self) -> tuple[Line, ...]:
        """The labels and states of rows after the last line that the model knows."""
        return () if self.history is None or self.last_line is None else self.history.lines_up_to(self.last_line)

    def code_of(self, label: Any) -> int:
        """The index of a label among the classes, -1 for any other label."""
        return next((place for place, known in enumerate(self.labels) if same(label, known)), -1)

    @property
    def of_others(self) -> bool:
        """Whether the model claims anything about the labels of unanswered rows."""
        return self.status == "certified" or self.evidence is not None

    @property
    def several(self) -> bool:
        """Whether there are more than two classes."""
        return len(self.planes) > 1

    @property
    def by_largest(self) -> bool:
        """Whether a row is given the class of the largest value."""
        return self.several and (bool(self.loss) or self.at_once is not None)

    @property
    def draws(self) -> Coded:
        """The rows drawn, by number."""
        return Coded.of(self.draws_ids, self.draws_codes)

    @property
    def worst(self) -> int:
        """The index of the hyperplane that the certificate is about."""
        if self.at_once is not None:
            return 0
        if self.status == "not_separable":
            pairs = [(plane.lower, plane.upper) for plane in self.planes]
            return pairs.index((self.lower, self.upper)) if (self.lower, self.upper) in pairs else 0
        return int(np.argmin([_key(plane) for plane in self.planes]))

    def side(self, plane: int, codes: np.ndarray) -> np.ndarray:
        """1 or -1 (n,): the side of a hyperplane on which rows of these classes belong; 0 for rows without a class."""
        return np.where(codes < 0, 0, np.where(codes == (plane if self.several else 1), 1, -1))

    def prefix(self, plane: int) -> str:
        """The prefix of messages about a hyperplane."""
        return f"class {self.labels[plane]!r} against the rest: " if len(self.bounded) > 1 else ""


def _key(plane: Claim) -> float:
    if plane.lower is None or plane.upper is None:
        return -1.0
    return plane.lower / plane.upper if plane.lower > 0 and plane.upper > 0 else 0.0


def active_claim(files: ModelFiles) -> ActiveClaim:
    """The claims of the model in these files."""
    record, arrays = cast("Active | ActiveClasses", files.record), files.arrays
    asked, several = record.parameters, record.problem == "active_classes"
    codes = {
        name: arrays[f"{name}_classes"].astype(np.int64) if several else _codes(arrays[name + suffix])
        for name, suffix in (("answered", "_signs"), ("draws", "_signs"), ("coreset", "_y"))
    }
    claim = ActiveClaim(
        **any_claim(files, WHOLE, soft=asked.soft),
        y=codes["coreset"] + 1,
        labels=tuple(record.classes),
        planes=(),
        at_once=None,
        method=asked.method,
        error=asked.error,
        confidence=asked.confidence,
        seed=asked.seed,
        by_class=asked.by_class is not UNSET,
        centre=asked.hypothesis is not UNSET,
        loss="" if asked.loss is UNSET else asked.loss,
        cost=0.0 if asked.C is UNSET else float(asked.C),
        trial=0 if asked.trial is UNSET else int(asked.trial),
        evidence=record.evidence,
        log=record.log,
        answered=Coded.of(arrays["answered_ids"], codes["answered"]),
        draws_ids=arrays["draws_ids"],
        draws_codes=codes["draws"],
        unsure=arrays.get("unsure_ids", np.zeros(0, np.int64)),
        **_map_facts(files),
    )
    if not several:
        return replace(claim, planes=(Claim(**two_classes(files, WHOLE, soft=asked.soft)),))
    claim = replace(
        claim,
        planes=tuple(_hyperplane(files, codes["coreset"], k) for k in range(len(claim.labels))),
        at_once=None if asked.multi_class is UNSET else _at_once(files, codes["coreset"] + 1),
    )
    if claim.at_once is not None or claim.status != "not_separable":
        return claim
    stopped = (plane if k == claim.worst else replace(plane, status="stopped") for k, plane in enumerate(claim.planes))
    return replace(claim, planes=tuple(stopped))


def _map_facts(files: ModelFiles) -> dict[str, Any]:
    """Name, arrays and error bound of the map of a model's rows."""
    if not files.record.map:
        return {"asked_map": {}, "map_digest": None}
    asked = files.record.parameters
    made = {name: values for name, values in files.arrays.items() if name.startswith(PREFIX)}
    return {
        "asked_map": {name: getattr(asked, name) for name in ("map", *KEYS[files.record.map])},
        "map_digest": map_digest(made),
    }


def _codes(signs: np.ndarray) -> np.ndarray:
    return (signs > 0).astype(np.int64)


def _at_once(files: ModelFiles, y: np.ndarray) -> ClassesClaim:
    """The claim about all classes; y (m,): those of the coreset's rows, from 1."""
    facts, hypothesis = any_claim(files, WHOLE, soft=False), files.arrays["hypothesis"]
    constant = last_entry(facts["radius"]) if facts["intercept"] else 0.0
    return ClassesClaim(
        **facts,
        y=y,
        labels=tuple(cast("ActiveClasses", files.record).classes),
        constant=constant,
        v=np.column_stack([hypothesis[:, :-1], hypothesis[:, -1] / (constant or 1.0)]),
        duals=files.arrays["duals"],
        cost=0.0,
        balanced=False,
        reference=np.zeros_like(hypothesis),
        outliers=UNSET,
        left_out=np.zeros(0, np.int64),
        proof={},
    )


def _hyperplane(files: ModelFiles, codes: np.ndarray, k: int) -> Claim:
    """The claims about one class against all others, or the hyperplane of one of all at once."""
    record, arrays = cast("ActiveClasses", files.record), files.arrays
    facts = any_claim(files, WHOLE, soft=record.parameters.soft)
    if record.members is not UNSET:
        facts |= {"lower": record.members[k].lower, "upper": record.members[k].upper}
    hypothesis = arrays["hypothesis"][k]
    return Claim(
        **facts,
        y=np.where(codes == k, 1, -1),
        negative=REST,
        positive=record.classes[k],
        w=hypothesis[:-1],
        b=float(hypothesis[-1]),
        alpha=arrays["duals"][:, k],
    )
