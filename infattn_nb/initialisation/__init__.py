"""Measures of a network at initialisation, scans over initialisations, reports."""
from .._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
