"""What a line of ``rounds.jsonl`` holds, for every kind of problem, and what the meters add up."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse import random as random_rows

from coremargin.data.arrays import ArraySource
from coremargin.engine.loop import ScanCost
from coremargin.engine.problem import AnyProblem, Round
from coremargin.learn.record import RunCounters
from coremargin.problems.registry import new_job, problem_of

FIGURES = ["lower", "lower_now", "upper", "working_set_rows", "coreset_rows", "new_rows", "rows_below"]
COSTS = ["chunks", "chunks_read", "chunks_skipped", "bytes_read", "seconds", "solve_seconds"]
#: Job -> what its lines tell besides.
KINDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "hard": ({}, ["stage", "stages"]),
    "paper": ({"strategy": "paper"}, []),
    "soft": ({"loss": "hinge"}, []),
    "segments": ({"loss": "hinge", "memory": 20_000}, ["part"]),
    "classes": ({"classes": "crammer-singer"}, []),
    "soft classes": ({"classes": "crammer-singer", "loss": "hinge", "epsilon": 0.5}, ["stage", "stages"]),
    "outliers": ({"outliers": 2}, ["nodes", "stage", "stages"]),
    "fleet": ({"folds": 2, "loss": "hinge"}, ["members", "members_certified", "members_done", "worst"]),
}


def problem_for(name: str) -> AnyProblem:
    """A problem of this kind on a few rows; for segments, more columns than rows and more of both than fit; with a loss
    for several classes, more rows than are solved before a scan.
    """
    generator = np.random.default_rng(4)
    wide = name == "segments"
    shape = {"segments": (300, 500), "soft classes": (1200, 4)}.get(name, (120, 4))
    X: Any = generator.standard_normal(shape).astype(np.float32)
    y = np.where(X[:, 0] < 0, -1, 1)
    if wide:
        X = csr_array(random_rows(*shape, 0.05, dtype=np.float32, random_state=generator))
    options, _ = KINDS[name]
    return problem_of(new_job(store="rows", out="m", sample=0.1, **options), ArraySource(X, y, chunk_rows=20))


@pytest.mark.parametrize("name", KINDS)
def test_what_a_line_holds(name: str) -> None:
    """Keys and their order are the same whatever the kind, but for what only this kind tells."""
    problem, counters = problem_for(name), RunCounters()
    told = problem.round_of(problem.start())
    begun = name == "soft classes"  # its sample is the first stage of the read
    assert (told.number, told.finished) == ((1, False) if begun else (0, True))
    assert (told.status, told.next_scan.number) == ("running", 1)
    assert told.rows_below is None
    counters.sampled(told, ScanCost(6, 1, 100, 0.5, 0.25))
    (line,) = counters.rounds
    assert list(line) == ["round", "kind", *FIGURES, *KINDS[name][1], "ratio", *COSTS, "status"]
    assert (line["kind"], counters.scans) == (("stage", 1) if begun else ("sample", 0))
    assert (line["chunks_skipped"], counters.bytes_read) == (5, 100)
    assert json.loads(json.dumps(line, allow_nan=False)) == line


def test_bounds_that_are_not_known_are_null_and_the_ratio_is_none_of_the_best() -> None:
    """An infinite bound is null in the line; the ratio is 0 then, and else what is proven of the best."""
    counters, cost = RunCounters(), ScanCost(6, 6, 100, 0.5, 0.25)
    counters.sampled(Round(0, "running", -np.inf, -np.inf, np.inf, 5, 0, 5), cost)
    counters.scanned(Round(1, "certified", 1.5, 1.25, 2.0, 7, 3, 2, rows_below=4, more={"nodes": 9}), cost)
    first, second = counters.rounds
    assert (first["lower"], first["lower_now"], first["upper"], first["ratio"]) == (None, None, None, 0.0)
    assert (second["lower"], second["upper"], second["ratio"], second["rows_below"]) == (1.5, 2.0, 0.75, 4)
    assert (second["nodes"], second["status"], second["round"]) == (9, "certified", 1)
    assert (counters.scans, counters.bytes_read) == (1, 200)


def test_where_the_parts_of_a_scan_read_adds_up() -> None:
    """A part that read all chunks tells no places, and counts in each of them; a stage has a line of its own."""
    figures = {"lower": 0.0, "lower_now": 0.0, "upper": 1.0, "working_set_rows": 1, "coreset_rows": 1, "new_rows": 1}
    told = Round(number=1, status="running", part=1, **figures)  # type: ignore[arg-type]
    some = ScanCost(4, 2, 50, 0.5, 0.25, where=(1, 0, 1, 0))
    every = ScanCost(4, 4, 100, 0.5, 0.25)
    for costs in ((some, every), (every, some)):
        counters = RunCounters()
        for cost in costs:
            counters.scanned(told, cost)
        (line,) = counters.rounds
        assert line["where"] == [2, 1, 2, 1]
        assert sum(line["where"]) == line["chunks_read"] == 6
    staged = RunCounters()
    for stage in (1, 2):
        staged.scanned(replace(told, part=None, stage=stage, stages=2), some)
    assert [(line["kind"], line["stage"], line["where"]) for line in staged.rounds] == [
        ("stage", 1, [1, 0, 1, 0]),
        ("stage", 2, [1, 0, 1, 0]),
    ]
    assert RunCounters(**json.loads(json.dumps(staged.as_now()))).rounds == staged.rounds, "a resumed job tells them"
