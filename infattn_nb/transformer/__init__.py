"""Whole networks at initialisation, forward and backward: norms, attention, MLPs, blocks."""
