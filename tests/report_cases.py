"""Cases and helpers of several test files."""

from infattn_nb import Transformer
from infattn_nb.transformer import embedding_cov

WORDS = "to be or not to be".split()


def small(**options):
    return Transformer.uniform(
        embedding_cov(WORDS, 1.0, 0.3),
        layers=3,
        heads=2,
        mask="causal",
        final_norm=True,
        **options,
    )


TINY = '{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2}'
