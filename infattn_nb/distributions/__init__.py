"""Scale mixtures of Gaussians, and Gaussians with a random covariance."""
