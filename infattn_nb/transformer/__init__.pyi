from .stream import Projection as Projection
from .stream import embedding_cov as embedding_cov, text_labels as text_labels
from .parts import Norm as Norm
from .attention import Rotary as Rotary, SelfAttention as SelfAttention
from .latent import LatentAttention as LatentAttention
from .mlp import FeedForward as FeedForward
from .experts import Experts as Experts
from .adapters import Adapters as Adapters
from .block import Block as Block
from .passes import Chain as Chain, Gradients as Gradients
from .network import Transformer as Transformer

__all__: list[str]
