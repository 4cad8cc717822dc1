from .hierarchical import HierarchicalGaussian as HierarchicalGaussian
from .scale_mixture import (
    Mixture as Mixture,
    ScaleMixture as ScaleMixture,
    mixture_of_heads as mixture_of_heads,
)

__all__: list[str]
