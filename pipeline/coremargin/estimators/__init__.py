"""scikit-learn classes, thin: the same training as ``coremargin.train`` behind ``fit`` and ``predict``."""

from __future__ import annotations

from coremargin.estimators.classifier import MarginCoresetClassifier
from coremargin.estimators.kernel import KernelCoresetClassifier

__all__ = ["KernelCoresetClassifier", "MarginCoresetClassifier"]
