"""Whole networks at initialisation."""
