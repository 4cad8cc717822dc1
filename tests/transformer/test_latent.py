"Latent attention, both passes, against modules of transformers."

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import ks_2samp

from infattn_nb import Block, Norm, Transformer
from infattn_nb.transformer import LatentAttention, embedding_cov
from infattn_nb.transformer.block import BlockRecord
from infattn_nb.transformer.parts import Cotangent

G = embedding_cov([0, 1, 0, 2], 1.0, 0.3)
S, N = len(G), 12
SIZES = dict(heads=8, keys=6, queries=5, head_width=2, rotary_width=2, value_width=3)
VAR = dict(dkv=0.7, kr=30.0, dq=1.3, q=3.0, k=0.1, v=0.8, o=1.2)
VAR = {f"var_{k}": v for k, v in VAR.items()}
LATENT = LatentAttention(mask="causal", norm=Norm("rms", 1e-6), **SIZES, **VAR)
PLAIN = replace(LATENT, queries=None)
KINDS = {
    "deepseek_v3": "DeepseekV3",
    "deepseek_v2": "DeepseekV2",
    "minicpm3": "MiniCPM3",
}


class PerHead(LatentAttention):
    "A wrong variant, in which each head has a rotary key of its own."

    def _shared_keys(self, R, rng):
        each = [super(PerHead, self)._shared_keys(R, rng) for _ in range(self.heads)]
        return np.concatenate(each, axis=1)


def module_of(a, kind):
    "The module of one library for this attention, without weights."
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    name = KINDS[kind]
    config = getattr(transformers, f"{name}Config")(
        hidden_size=N,
        num_attention_heads=a.heads,
        num_key_value_heads=a.heads,
        q_lora_rank=a.queries,
        kv_lora_rank=a.keys,
        qk_nope_head_dim=a.head_width,
        qk_rope_head_dim=a.rotary_width,
        v_head_dim=a.value_width,
        num_hidden_layers=1,
    )
    config._attn_implementation = "eager"
    modeling = getattr(getattr(transformers.models, kind), f"modeling_{kind}")
    module = getattr(modeling, f"{name}Attention")(config, 0).double().eval()
    rotary = getattr(modeling, f"{name}RotaryEmbedding")(config)
    angles = rotary(torch.zeros(1, S, N).double(), torch.arange(S)[None])
    mask = torch.full((S, S), -torch.inf).triu(1).double()[None, None]
    return torch, module, angles, mask


def scales(a):
    "Standard deviations of the rows of each matrix."
    d = a.head_width + a.rotary_width
    of_keys = [a.var_dkv] * a.keys + [a.var_kr] * a.rotary_width
    of_head = [a.var_k] * a.head_width + [a.var_v] * a.value_width
    found = {
        "kv_a_proj_with_mqa": np.array(of_keys) / N,
        "kv_b_proj": np.array(of_head * a.heads) / a.keys,
        "o_proj": np.full(N, a.var_o / (a.heads * a.value_width)),
    }
    if a.queries is None:
        return found | {"q_proj": np.full(a.heads * d, a.var_q / N)}
    return found | {
        "q_a_proj": np.full(a.queries, a.var_dq / N),
        "q_b_proj": np.full(a.heads * d, a.var_q / a.queries),
    }


def squares_of_gradients(a, module):
    "Squared norms of gradients over fan-ins, by our names."
    found = {}
    for name, own in module.named_parameters():
        if own.ndim < 2:
            continue
        grad = own.grad.numpy()
        name = name.split(".")[0]
        if name == "kv_a_proj_with_mqa":
            parts = {"dkv": grad[: a.keys], "kr": grad[a.keys :]}
        elif name == "kv_b_proj":
            heads = grad.reshape(a.heads, -1, a.keys)
            parts = {"k": heads[:, : a.head_width], "v": heads[:, a.head_width :]}
        else:
            ours = {"o_proj": "o", "q_proj": "q", "q_a_proj": "dq", "q_b_proj": "q"}
            parts = {ours[name]: grad}
        for k, part in parts.items():
            found[k] = (part**2).sum() / grad.shape[1]
    return found


@lru_cache
def of_modules(a, kind, size, seed=0):
    "Numbers of a residual sum .5 x + attention(x), from freshly drawn weights."
    torch, module, angles, mask = module_of(a, kind)
    rng = np.random.default_rng(seed)
    start = np.linalg.cholesky(G + 1e-14 * np.eye(S))
    sd = {k: np.sqrt(v) for k, v in scales(a).items()}
    found = []
    for _ in range(size):
        for name, row in sd.items():
            W = getattr(module, name).weight
            normal = rng.standard_normal(W.shape)
            W.data = torch.tensor(row[:, None] * normal)
        x = torch.tensor(start @ rng.standard_normal((S, N)), requires_grad=True)
        y, A = module(x[None], position_embeddings=angles, attention_mask=mask)
        module.zero_grad()
        y = 0.5 * x + y[0]
        head = torch.tensor(rng.standard_normal(N) / N**0.5)
        (y.mean(0) @ head).backward()
        gram = (y @ y.mT).detach().numpy() / N
        d = x.grad.numpy()
        of_loss, inner = d @ d.T, d @ x.detach().numpy().T
        entropy = -(A * A.clamp_min(1e-300).log()).sum(-1).mean((0, 1, 2)).item()
        squares = squares_of_gradients(a, module)
        found.append(
            [entropy, gram[0, 0], gram[0, 1], gram[2, 3], gram[3, 3]]
            + [of_loss[0, 0], of_loss[0, 3], inner[0, 1], inner[3, 3], inner[2, 2]]
            + [squares[k] for k in a.matrices]
        )
    return np.array(found)


def of_chains(a, size, width=N, seed=1):
    "The same numbers by the engine."
    block = Block(a, None, norm_placement=None, skip_scale=0.5)
    net = Transformer(G, [block], random_embeddings=True)
    g = net.gradients(width, size, seed, readout="mean")
    Y, D, T = g.chain.gram[:, 1], g.gram[:, 0], g.inner[:, 0]
    entropy = g.chain.entropy[:, 0].mean((1, 2))
    return np.column_stack(
        [entropy, Y[:, 0, 0], Y[:, 0, 1], Y[:, 2, 3], Y[:, 3, 3]]
        + [D[:, 0, 0], D[:, 0, 3], T[:, 0, 1], T[:, 3, 3], T[:, 2, 2]]
        + [g.squared_unit_norms[k][:, 0] for k in a.matrices]
    )


def p_values(a, ours, kind, size):
    pairs = zip(of_chains(ours, 4 * size).T, of_modules(a, kind, size).T, strict=True)
    return np.array([ks_2samp(*pair).pvalue for pair in pairs])


@pytest.mark.torch
@pytest.mark.power("distribution functions .28 apart")
def test_both_passes_are_those_of_a_module():
    "Entropies, Gram entries of outputs and gradients, and the size of each gradient."
    assert p_values(LATENT, LATENT, "deepseek_v3", 150).min() > 1e-8


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.power("distribution functions a fifteenth apart")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("a", [LATENT, PLAIN], ids=["latent", "plain"])
def test_both_passes_are_those_of_modules(kind, a):
    "And wrong variants are not: a key per head, no norm, tied or other sizes."
    size = 3000
    if kind != "deepseek_v3":
        a = replace(a, heads=4)  # these modules want a divisor of their width
    assert p_values(a, a, kind, size).min() > 1e-8
    fields = {name: getattr(a, name) for name in a.__dataclass_fields__}
    assert p_values(a, PerHead(**fields), kind, size).min() < 1e-8
    for wrong in (dict(keys=3), dict(var_kr=10.0), dict(norm=Norm("rms", 3.0))):
        assert p_values(a, replace(a, **wrong), kind, size).min() < 1e-8


def turned(x):
    "Pairs of coordinates as complex numbers, rotated by position; here one pair."
    torch = pytest.importorskip("torch")
    z = torch.complex(x[..., 0], x[..., 1])
    z = z * torch.exp(1j * torch.arange(x.shape[-2]).double())
    return torch.stack([z.real, z.imag], dim=-1)


def differentiated(a, record, drawn, M, rng):
    "Gradients by autograd, with matrices drawn given the record."
    torch = pytest.importorskip("torch")
    leaves = [record.Q, record.latent, record.shared]
    Q, latent, shared = (torch.tensor(x, requires_grad=True) for x in leaves)
    C = latent / ((latent**2).mean(-1, keepdim=True) + a.norm.eps).sqrt()
    C = C / a.keys**0.5
    factor = C.detach()[:, None]
    inverse = torch.linalg.pinv(factor)
    matrices, images = [], []
    for X, variance in ((record.K, a.var_k), (record.V, a.var_v)):
        N = variance**0.5 * rng.standard_normal((*X.shape[:2], a.keys, X.shape[-1]))
        N = torch.tensor(N)
        W = inverse @ (torch.tensor(X) - factor @ N) + N
        matrices.append(W.requires_grad_())
        images.append(C[:, None] @ W)
    K, V = images
    d = a.head_width
    P = Q[..., :d] @ K.mT + turned(Q[..., d:]) @ turned(shared).mT
    P = P / (d + a.rotary_width) ** 0.5
    assert (P - torch.tensor(record.scores)).abs().max() < 1e-9
    A = P.masked_fill(torch.ones(S, S).triu(1).bool(), -torch.inf).softmax(-1)
    g = torch.tensor(drawn.ξ + M[:, None] @ drawn.B)
    factor = (a.var_o / (a.heads * a.value_width)) ** 0.5
    (factor * g * (A @ V)).sum().backward()
    return [x.grad.numpy() for x in (Q, latent, shared, *matrices)]


def gram(x):
    "Products of rows, over all axes between the first and the last two."
    return (x @ x.mT).reshape(len(x), -1, S, S).sum(1)


@pytest.mark.torch
@pytest.mark.power("a mean 5 % too large")
def test_backward_is_the_gradient_given_the_record(size=3000):
    "Exactly where it is known, in mean squares elsewhere."
    rng = np.random.default_rng(2)
    R = np.broadcast_to(np.linalg.cholesky(G + 0.2 * np.eye(S)), (size, S, S))
    C = np.broadcast_to(rng.standard_normal((S, 2)), (size, S, 2))
    dY = Cotangent(C, C @ C.mT, R, R @ R.mT, N, np.arange(S))
    record = PLAIN.forward(R, N, rng)
    drawn = PLAIN.fresh(record, dY, rng)
    M = np.broadcast_to(rng.standard_normal((S, S)), (size, S, S))
    sizes, pulls = PLAIN.backward(record, drawn, M, dY)
    dQ, d_latent, d_shared, *of_matrices = differentiated(PLAIN, record, drawn, M, rng)
    inner = d_latent @ record.latent.mT + (d_shared @ record.shared.mT)[:, 0]
    np.testing.assert_allclose(pulls[0].inner, inner, atol=1e-8)
    np.testing.assert_allclose(pulls[1].inner, (dQ @ record.Q.mT).sum(1), atol=1e-8)
    np.testing.assert_allclose(pulls[1].cov, PLAIN.var_q * gram(dQ), atol=1e-8)
    for name, d in zip("kv", of_matrices, strict=True):
        norms = np.einsum("bhij,bhij->b", d, d)
        np.testing.assert_allclose(sizes[name].sum((1, 2)), norms, rtol=1e-6)
    cov = PLAIN.var_dkv * gram(d_latent) + PLAIN.var_kr * gram(d_shared)
    np.testing.assert_allclose(sizes["kr"], dY.G * gram(d_shared), atol=1e-8)
    found = np.stack([pulls[0].cov - cov, sizes["dkv"] - dY.G * gram(d_latent)])
    error = found.std(1) / size**0.5
    assert (abs(found.mean(1)) < 6 * error + 1e-12).all()


def test_fan_ins_are_the_lengths_of_the_rows():
    own = dict(o=24, k=6, v=6, dkv=N, kr=N)
    assert {k: PLAIN.fan_in(k, N) for k in PLAIN.matrices} == own | {"q": N}
    assert {k: LATENT.fan_in(k, N) for k in LATENT.matrices} == own | {"q": 5, "dq": N}


@pytest.mark.power("a variance 10 % too large")
@pytest.mark.parametrize("a", [LATENT, replace(PLAIN, score_scale=2.0)])
def test_stated_variances_are_those_of_scores_and_outputs(a, size=40_000):
    "Of one token of mean square one, which attends to itself."
    record = a.forward(np.ones((size, 1, 1)), N, np.random.default_rng(4))
    m = a.head_width + a.rotary_width
    for draws, variance in (
        ((record.scores**2).mean((1, 2, 3)), a.score_variance(m)),
        (record.F[:, 0, 0], a.output_variance),
    ):
        assert abs(draws.mean() - variance) < 6 * draws.std() / size**0.5


@pytest.mark.power("a variance 10 % too large")
def test_a_shared_key_makes_heads_dependent(size=4000):
    """The mean entropy of many heads has a variance that stays; of heads with keys of
    their own it falls as one over their number.
    """
    R = np.broadcast_to(np.linalg.cholesky(G + 1e-14 * np.eye(S)), (size, S, S))
    variances = {}
    for a in (LATENT, PerHead(**{k: getattr(LATENT, k) for k in KEPT})):
        for heads in (1, 16):
            own = replace(a, heads=heads, var_k=0.0, keys=1)
            record = own.forward(R, np.inf, np.random.default_rng(0))
            variances[type(a), heads] = record.entropy[:, :, -1].mean(1).var()
    shared, apart = (
        variances[kind, 16] / variances[kind, 1] for kind in (LatentAttention, PerHead)
    )
    assert shared > 2 / 16
    assert shared > 1.5 * apart


KEPT = [name for name in LATENT.__dataclass_fields__]


def test_the_law_does_not_depend_on_the_width_but_the_sum():
    "Given G, the weights and F of one seed are those of any width."
    R = np.broadcast_to(np.eye(S), (5, S, S))
    a, b = (LATENT.forward(R, n, np.random.default_rng(3)) for n in (12, np.inf))
    np.testing.assert_array_equal(a.F, b.F)
    assert isinstance(a, type(b)) and BlockRecord is not None


def test_gradients_at_infinite_width_are_close_to_those_of_large_widths():
    a, b = (np.log(of_chains(LATENT, 1200, n, 5)[:, 10:]) for n in (512, np.inf))
    error = np.sqrt(a.var(0) / 1200 + b.var(0) / 1200)
    assert (abs(a.mean(0) - b.mean(0)) < 6 * error + 0.02).all()


def test_bad_sizes_are_refused_in_one_sentence():
    net = Transformer(G, [Block(LATENT, None)], random_embeddings=True)
    with pytest.raises(ValueError, match="`keys` must be at most the width 4, got 6"):
        net.chain(4, 1, 0)
