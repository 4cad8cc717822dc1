from .sequences import (
    embed_features as embed_features,
    make_recall as make_recall,
    patches as patches,
)
from .regressor import AttentionRegressor as AttentionRegressor
from .descent import AttentionDescent as AttentionDescent
from .circuits import CircuitDescent as CircuitDescent

__all__: list[str]
