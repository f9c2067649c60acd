"""The losses: each by its own file and a line in the table, and by no word anywhere else in the room."""

from __future__ import annotations

import ast
import copy
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import coremargin.problems.soft.losses.table as losses
from coremargin.errors import DataError
from coremargin.formats.model_record import FILE
from coremargin.learn.api import train
from coremargin.problems.common import report as common
from coremargin.problems.soft import report
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.report import page

if TYPE_CHECKING:
    from coremargin.problems.soft.losses.loss import Loss

EACH = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
ROOM = Path(losses.__file__).parents[1]


@pytest.mark.parametrize("room", [ROOM, ROOM.parent / "fleet"], ids=["soft", "fleet"])
def test_no_other_module_knows_a_loss_by_its_word(room: Path) -> None:
    """Only the file of a loss has its word as a string: whoever acts on a loss asks it for what differs."""
    known = {path for path in room.rglob("*.py") if path.parent.name != "losses"}
    assert len(known) > 10
    for path in known:
        words = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not words & set(LOSSES), path


@EACH
def test_the_dual_of_a_row_is_the_conjugate_of_its_loss(loss: Loss) -> None:
    """Over all slacks c loss(xi) - a xi is least at minus what a dual adds beyond its own sum, by a grid."""
    slack = np.linspace(0.0, 4.0, 400_001)
    for row_c in (0.3, 2.0):
        for a in row_c * np.array([0.0, 0.25, 1.0]):
            least = float((row_c * loss.value(1.0 - slack) - a * slack).min())
            added = loss.dual_total(np.array([a]), np.array([row_c]))
            assert added == pytest.approx(a + least, abs=1e-9)


@EACH
def test_a_slack_has_its_value_and_copies_are_equal(loss: Loss) -> None:
    """slack() is the inverse of value(); a copy, such as workers have, is the same loss."""
    assert float(loss.value(np.array([1.0 - loss.slack(0.7)]))[0]) == pytest.approx(0.7)
    assert copy.deepcopy(loss) == loss
    assert sum(other == loss for other in LOSSES.values()) == 1


@EACH
def test_an_error_of_margins_is_worth_what_it_can_change(loss: Loss) -> None:
    """No value changes by more than ``lost`` says when each margin is off by up to an error."""
    rng = np.random.default_rng(0)
    row_c, slack, error = rng.uniform(0.1, 2.0, 50), rng.uniform(0.0, 3.0, 50), 1e-3
    value = float(row_c @ loss.value(1.0 - slack))
    most = float(row_c @ loss.value(1.0 - slack - error)) - value
    assert most <= loss.value_error(error, value, float(row_c.sum())) * 1.0000001


@pytest.mark.parametrize("word", ["log", None, 3, ["hinge"]])
def test_a_page_of_an_unknown_loss_is_refused(tmp_path: Path, word: object) -> None:
    """The page says which losses there are and which was found, and invents none."""
    X = np.random.default_rng(0).standard_normal((40, 3))
    y = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, "a", "b")
    train(X, y, loss="hinge", out=tmp_path / "m")
    model, run, records = page.read_folder(tmp_path / "m", FILE)
    coreset = common.read_coreset(tmp_path / "m", {})
    assert "max(0, 1" in report.render(model, run, records, coreset)
    changed = {**model, "parameters": {**model["parameters"], "loss": word}}
    with pytest.raises(DataError, match=r"parameters\.loss: expected 'hinge' or 'squared_hinge', found"):
        report.render(changed, run, records, coreset)
