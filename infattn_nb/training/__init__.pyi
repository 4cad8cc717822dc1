from .optimizers import (
    SGD as SGD,
    Adam as Adam,
    AdamW as AdamW,
    Lion as Lion,
    Muon as Muon,
)
from .programs import Training as Training, train as train

__all__: list[str]
