"""What the infinitely wide layer learns from data."""
