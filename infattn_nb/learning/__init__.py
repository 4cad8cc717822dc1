"""Bayesian learning and training of attention layers."""
