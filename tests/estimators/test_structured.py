"""``StructuredClassifier``: scikit-learn's conventions, groups by metadata routing, feature dictionaries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.feature_extraction import DictVectorizer
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import coremargin
from coremargin.errors import UsageError
from coremargin.estimators import StructuredClassifier


@pytest.mark.slow
@parametrize_with_checks([StructuredClassifier(structure="outputs", scaling="standard")])
def test_scikit_learn_finds_nothing_to_object_to(estimator: Any, check: Any) -> None:
    """Every check of scikit-learn passes for rows that are labelled one by one."""
    check(estimator)


@pytest.fixture
def routing() -> Iterator[None]:
    """Metadata routing, as of scikit-learn."""
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def chains(sequences: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels that count up within each sequence, and sequences."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 8, sequences)
    codes = np.concatenate([(rng.integers(3) + np.arange(length)) % 3 for length in lengths])
    centres = np.random.default_rng(7).normal(size=(3, 4))
    X = centres[codes] + rng.normal(size=(len(codes), 4))
    return X, np.array(list("abc"))[codes], np.repeat(np.arange(sequences), lengths)


def test_it_is_the_model_that_train_makes() -> None:
    """The same weights to the bit from arrays and sparse rows, with a certificate; labels by the sequence."""
    X, y, groups = chains()
    machine = StructuredClassifier(C=0.5, epsilon=1e-4).fit(X, y, groups=groups)
    model: Any = coremargin.train(X, y, groups=groups, structure="chain", loss="hinge", C=0.5, epsilon=1e-4)
    assert machine.certificate_ == model.certificate
    assert machine.certificate_.ratio >= 1 - 1e-4
    np.testing.assert_array_equal(machine.coef_, model.coef)
    np.testing.assert_array_equal(machine.transitions_, model.transitions)
    assert machine.transitions_.shape == (3, 3)
    np.testing.assert_array_equal(machine.predict(X, groups=groups), model.predict(X, groups=groups))
    assert machine.predict(sp.csr_array(X), groups=groups).tolist() == machine.predict(X, groups=groups).tolist()
    assert machine.decision_function(X, groups=groups).shape == (len(X), 3)
    fresh, labels, sequences = chains(seed=1)
    alone = StructuredClassifier(structure="outputs", C=0.5).fit(X, y)
    assert machine.score(fresh, labels, groups=sequences) > alone.score(fresh, labels)


def test_parameters_are_cloned_and_groups_are_needed() -> None:
    """A clone has the same parameters; a chain without groups, or outputs with groups, is refused."""
    X, y, groups = chains(10)
    machine = StructuredClassifier(C=2.0, memory="1 GB")
    assert clone(machine).get_params() == machine.get_params()
    with pytest.raises(ValueError, match="groups"):
        StructuredClassifier().fit(X, y)
    fitted = StructuredClassifier().fit(X, y, groups=groups)
    with pytest.raises(UsageError, match="groups: expected the id of each row's sequence"):
        fitted.predict(X)
    with pytest.raises(ValueError, match="structure"):
        StructuredClassifier(structure="tree").fit(X, y, groups=groups)
    with pytest.raises(UsageError, match="groups: this model labels each row for itself"):
        StructuredClassifier(structure="outputs").fit(X, y).predict(X, groups=groups)


@pytest.mark.usefixtures("routing")
def test_groups_reach_every_step_by_metadata_routing() -> None:
    """Cross-validation and a search of whole sequences: splitter, fit and score get the groups."""
    X, y, groups = chains()
    machine = StructuredClassifier().set_fit_request(groups=True).set_score_request(groups=True)
    found = cross_validate(machine, X, y, params={"groups": groups}, cv=GroupKFold(3))
    assert len(found["test_score"]) == 3
    assert min(found["test_score"]) > 0.5
    search = GridSearchCV(machine, {"C": [0.01, 1.0]}, cv=GroupKFold(2)).fit(X, y, groups=groups)
    assert search.best_estimator_.certificate_.ratio >= 0.999


@pytest.mark.usefixtures("routing")
def test_dictionaries_of_features() -> None:
    """CRFsuite's features of words in a pipeline: words that were never seen are no features."""
    texts = ["the old man sleeps", "a ship sinks", "the ship sleeps", "a man sinks"]
    sentences = [text.split() for text in texts]
    tags = [["DT", "JJ", "NN", "VB"], ["DT", "NN", "VB"], ["DT", "NN", "VB"], ["DT", "NN", "VB"]]
    X = [
        {"bias": 1, "word": word, "first": t == 0, "-1:word": words[t - 1] if t else ""}
        for words in sentences
        for t, word in enumerate(words)
    ]
    y = [tag for one in tags for tag in one]
    groups = [number for number, words in enumerate(sentences) for _ in words]
    chain = StructuredClassifier(C=10.0).set_fit_request(groups=True).set_predict_request(groups=True)
    tagger = make_pipeline(DictVectorizer(), chain).fit(X, y, groups=groups)
    assert tagger.predict(X, groups=groups).tolist() == y
    unseen = [{"bias": 1, "word": word, "first": t == 0} for t, word in enumerate(["every", "child", "laughs"])]
    assert tagger.predict(unseen, groups=[0, 0, 0]).tolist() == ["DT", "NN", "VB"]


@pytest.mark.parametrize("structure", ["ranking", "own_structures:Chain", object, "tree"])
def test_other_structures_are_those_of_train(structure: Any) -> None:
    """The estimator has labels and hyperplanes, which others do not."""
    X, y, groups = chains(4)
    with pytest.raises(UsageError, match="structure: expected 'chain' or 'outputs', found .*; use coremargin.train"):
        StructuredClassifier(structure=structure).fit(X, y, groups=groups)
