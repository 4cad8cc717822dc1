"""Configs and modules of Hugging Face's transformers, read and written."""
from .._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
