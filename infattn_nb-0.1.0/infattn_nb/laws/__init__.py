"""Probability laws as objects: scale mixtures and Gaussians with a random covariance."""
