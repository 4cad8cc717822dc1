"""Knows nothing of networks: refusals, seeds and blocks, factors, quadrature, nonlinearities."""
