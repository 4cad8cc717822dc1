from .tokens import CommonTokens as CommonTokens, Tokens as Tokens
from .layer import Attention as Attention, simulate_dense as simulate_dense

__all__: list[str]
