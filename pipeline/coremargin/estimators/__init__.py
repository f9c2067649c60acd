"""Estimators for scikit-learn: ``coremargin.train`` behind ``fit`` and ``predict``."""

from __future__ import annotations

from coremargin.estimators.ball import OneClassBall
from coremargin.estimators.classifier import MarginCoresetClassifier
from coremargin.estimators.kernel import KernelCoresetClassifier
from coremargin.estimators.structured import StructuredClassifier

__all__ = ["KernelCoresetClassifier", "MarginCoresetClassifier", "OneClassBall", "StructuredClassifier"]
