"""What draws rest on: a hypothesis that was there before; and what later answers say of each stratum."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import forge_asked
from coremargin.formats.draws import hypothesis_hash
from coremargin.verify.active import hypergeometric
from coremargin.verify.examine import examine
from forge_active import LINE
from forge_asked import Maker, mixed
from forge_specimens import write_store

if TYPE_CHECKING:
    from forge_active import Played


def failing(played: Played, folder: Path) -> dict[str, str]:
    """The checks that fail, and what they say."""
    found = examine(played.write(folder), played.rows.path)
    return {check.name: check.text for check in found.checks if not check.ok}


@pytest.mark.specimens(1)
@pytest.mark.parametrize(("C", "epsilon"), [(1e-6, 0.1), (1e-3, 0.1), (1e-6, 1e-4)])
def test_a_hypothesis_made_of_its_draws_is_no_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, C: float, epsilon: float
) -> None:
    """Labels are coins, the log is true, and the hyperplane is fitted to the draws as far as the gap allows: what its
    draws show is false. The log refuses it; a model by itself is believed no further than it says.
    """
    rng, n = np.random.default_rng(0), 800
    truth = rng.integers(0, 2, n)
    rows = write_store(tmp_path / "s.zarr", rng.standard_normal((n, 80)), [None] * n)
    asked: dict[str, Any] = {"loss": "hinge", "C": C, "trial": 60, "error": 0.3, "confidence": 0.95}
    maker = Maker(rows, truth, ["no", "yes"], **asked, epsilon=epsilon)
    order = rng.permutation(n)  # as many of each class: then b = 0 is as good as any, and the sides are w's to choose
    maker.queried(np.concatenate([order[truth[order] == code][:50] for code in (0, 1)]).tolist(), "example")
    [plane] = maker.solve()
    tried = hypothesis_hash(plane.w[None], np.array([plane.b]))
    assert maker.draw([plane], 1)
    drawn = np.array(list(maker.drawn))
    signs = 2 * np.array([maker.drawn[row] for row in drawn]) - 1
    w = np.linalg.lstsq(rows.X[drawn], signs, rcond=None)[0]
    ids = np.array(sorted(maker.known))
    side = np.where(np.array([maker.known[row] for row in ids]) == 1, 1, -1)
    for size in 0.5 ** np.arange(60):
        plane.w, plane.b = w * size, 0.0
        slack = np.maximum(0, 1 - side * (rows.X[ids] @ plane.w))
        plane.upper = float((0.5 * plane.w @ plane.w + C * slack.sum()) * (1 + 1e-10))
        if plane.lower >= (1 - epsilon) * plane.upper:
            break
    assert (maker.sides([plane]) != truth).sum() > 0.4 * n
    monkeypatch.setattr(forge_asked, "most_wrong", lambda N, T, s, delta: hypergeometric.least_bound(N, T, delta, s))
    monkeypatch.setattr(forge_asked, "least_wrong", lambda N, T, s, delta: hypergeometric.most_least(N, T, delta, s))
    forged = maker.made([plane], 1)
    for line in forged.lines:
        line |= {"tried": tried} if line["why"] == "draw" else {}
    failures = failing(forged, tmp_path / "c")
    assert list(failures) == ["attempt"]
    assert "is to try the model's hypothesis" in failures["attempt"]
    [evidence] = [c for c in examine(tmp_path / "c" / "model", rows.path).checks if c.name == "evidence"]
    assert "if the hypothesis was there before these were answered" in evidence.text


def played(folder: Path, **options: Any) -> tuple[Played, np.ndarray, np.ndarray]:
    """A campaign by class with a loss, the class that its model gives each row, and the rows without an answer."""
    rows, truth = mixed(folder, 400, **options)
    one = Maker(rows, truth, ["no", "yes"], loss="hinge", C=1.0, trial=50, error=0.3, by_class=True).play(first=60)
    side = (rows.X @ one.arrays["w"] + one.arrays["b"][0] >= 0).astype(int)
    known = np.concatenate([one.arrays["answered_ids"], one.arrays["draws_ids"], one.arrays.get("unsure_ids", [])])
    return one, side, np.setdiff1d(np.arange(400), known).astype(int)


def later(one: Played, rows: np.ndarray, labels: np.ndarray) -> None:
    """Rows are answered after the model."""
    one.model_line = len(one.lines)
    for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
        one.lines.append({
            **LINE, "row": row, "label": ["no", "yes"][label], "action": "label", "why": "query", "attempt": None
        })  # fmt: skip


@pytest.mark.parametrize("stratum", [0, 1])
def test_later_answers_refute_a_stratum_by_itself(tmp_path: Path, stratum: int) -> None:
    """More rows of one class are known to be wrong than it may have, though not more than both may have together."""
    one, side, free = played(tmp_path)
    strata, every = one.record["evidence"]["strata"], one.record["evidence"]
    mine = free[side[free] == stratum]
    enough = strata[stratum]["error_bound"] - strata[stratum]["wrong"] + 1
    assert enough + every["wrong"] <= every["error_bound"]
    later(one, mine[: enough - 1], 1 - side[mine[: enough - 1]])
    assert failing(one, tmp_path / "fine") == {}
    later(one, mine[enough - 1 : enough], 1 - side[mine[enough - 1 : enough]])
    one.model_line -= enough - 1
    assert "are known to be wrong" in failing(one, tmp_path / "c").get("late answers", "")


def test_later_answers_refute_how_many_are_wrong_at_least(tmp_path: Path) -> None:
    """Every other row turns out to be as the model says, where it claims that more are wrong than its draws were."""
    one, side, free = played(tmp_path)
    assert any(part["error_least"] > part["wrong"] for part in one.record["evidence"]["strata"])
    later(one, free, side[free])
    assert "are known to be right" in failing(one, tmp_path / "c").get("late answers", "")


def test_later_answers_about_rows_of_weight_zero_say_nothing(tmp_path: Path) -> None:
    """They are nobody's: neither wrong ones nor right ones count."""
    weights = np.where(np.arange(400) % 4 == 0, 0.0, 1.0)
    one, side, free = played(tmp_path, weights=weights)
    light = free[weights[free] == 0]
    later(one, light, 1 - side[light])
    assert failing(one, tmp_path / "c") == {}
