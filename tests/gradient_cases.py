"Networks whose gradients are compared with torch's, and by what."

import numpy as np

S = 4  # tokens


def attention(**k):
    return dict(heads=2) | k


def feedforward(**k):
    return dict(units=2, activation="gelu") | k


FAR = abs(np.subtract.outer(np.arange(S), np.arange(S)))
ALIBI = -np.array([0.5, 0.25, 0.125])[:, None, None] * FAR
CASES = {
    "pre": dict(n=32, attention=attention(heads=4), ff=feedforward(), final=True),
    "one strong head": dict(
        n=16,
        attention=attention(heads=1, var_q=16.0, var_k=4.0, var_o=16.0),
        final=True,
    ),
    "rms, causal, relu": dict(
        n=24,
        attention=attention(mask="causal"),
        ff=feedforward(activation="relu"),
        kind="rms",
        final=True,
    ),
    "post, strong": dict(
        n=16,
        norm_placement="post",
        attention=attention(heads=1, var_q=16.0, var_o=16.0),
        ff=feedforward(),
    ),
    "post, rms, final": dict(
        n=20,
        norm_placement="post",
        kind="rms",
        attention=attention(var_q=4.0),
        ff=feedforward(activation="tanh"),
        final=True,
        readout="mean",
    ),
    "no norm, biases": dict(
        n=16,
        norm_placement=None,
        attention=attention(heads=1, var_q=16.0, var_o=1.0),
        ff=feedforward(activation="tanh", var_b1=0.5, var_b2=0.3),
    ),
    "output": dict(
        n=18,
        norm_placement="output",
        attention=attention(heads=3, var_q=4.0),
        ff=feedforward(),
        skip=0.8,
        branch=1.3,
        readout="last",
    ),
    "sandwich": dict(
        n=24,
        norm_placement="sandwich",
        kind="rms",
        attention=attention(softcap=1.5, var_q=9.0),
        ff=feedforward(activation="gelu_tanh", gated=True, var_3=2.0),
        final=True,
    ),
    "parallel, rotary": dict(
        n=32,
        parallel=True,
        attention=attention(heads=2, var_q=4.0, rotary=dict(share=0.5)),
        ff=feedforward(units=1),
        final=True,
    ),
    "groups, qk norm, rotary": dict(
        n=24,
        kind="rms",
        attention=attention(
            heads=4,
            groups=2,
            mask="causal",
            rotary=dict(base=100.0),
            qk_norm="rms",
            score_scale=1.5,
        ),
        ff=feedforward(activation="silu", gated=True),
        final=True,
    ),
    "groups, bias, own width": dict(
        n=16,
        attention=attention(heads=3, groups=1, head_width=7, var_q=4.0, bias=ALIBI),
        final=False,
    ),
    "layer norm of queries": dict(
        n=16,
        layers=1,
        norm_placement=None,
        attention=attention(heads=2, qk_norm="layer"),
        readout="last",
    ),
    "least width": dict(
        n=2 * S + 1,
        attention=attention(heads=1, var_q=4.0),
        ff=feedforward(units=1),
        final=True,
    ),
    "GPT-2": dict(
        n=48,
        module="gpt2",
        attention=attention(heads=4, mask="causal", var_q=2.0, var_k=2.0, var_o=0.5),
        ff=feedforward(units=4, activation="gelu_tanh", var_2=0.5),
        final=True,
        readout="last",
    ),
    "Llama": dict(
        n=32,
        module="llama",
        kind="rms",
        eps=1e-6,
        attention=attention(
            heads=4, groups=2, mask="causal", rotary=dict(base=1e4), var_q=4.0
        ),
        ff=feedforward(units=3, activation="silu", gated=True),
        final=True,
        readout="last",
    ),
    "torch's encoder": dict(
        n=16,
        module="encoder",
        norm_placement="post",
        attention=attention(heads=2, var_q=4.0, var_o=4.0),
        ff=feedforward(activation="relu"),
    ),
    "norm of all queries": dict(
        n=16,
        kind="rms",
        attention=attention(
            heads=4,
            groups=2,
            rotary=dict(base=100.0),
            qk_norm="layer",
            joint_norm=True,
            score_scale=4.0,
            var_o=4.0,
        ),
        final=True,
    ),
    "clipped": dict(
        n=16,
        kind="rms",
        attention=attention(
            heads=4,
            groups=2,
            rotary=dict(base=100.0),
            qk_norm="rms",
            clip=0.7,
            var_v=2.0,
            score_scale=4.0,
        ),
        final=True,
    ),
}

# where fresh transposed matrices must be seen
INDEPENDENT = ("one strong head", "post, strong", "no norm, biases", "torch's encoder")


def informative(key):
    "Statistics by which gradient independence is judged."
    return key.startswith(("|dx", "trace"))


def case(name):
    "A case with its defaults."
    usual = dict(layers=2, norm_placement="pre", kind="layer", eps=1e-5, ff=None)
    usual |= dict(parallel=False, skip=1.0, branch=1.0, final=False, readout="all")
    return usual | dict(module=None) | CASES[name]


def embeddings(n, seed=1):
    "Tokens with means over their coordinates, two of them alike."
    # not `default_rng`, whose seeds tools/seeds.py replaces: the stored side has these
    rng = np.random.Generator(np.random.PCG64([seed]))
    X = rng.standard_normal((S, n)) + 0.5 * rng.standard_normal((S, 1))
    X[1] = 0.6 * X[0] + 0.8 * X[1]
    return X


def readout_cov(kind):
    last = np.eye(S)[-1]
    return {
        "all": np.eye(S),
        "last": np.outer(last, last),
        "mean": np.full((S, S), 1 / S**2),
    }[kind]


def statistics(gram, inner, norms, cosine):
    """E and dX Xᵀ (size, L + 1, s, s), θ by matrix (size, L), cosines of the first and
    last token after block 1 (size,): {name: (size,)}.
    """
    out = {}
    d = np.sqrt(np.maximum(np.einsum("blii->bli", gram), 0))
    for l in range(gram.shape[1]):
        out[f"|dx first| {l}"], out[f"|dx last| {l}"] = d[:, l, 0], d[:, l, -1]
        out[f"cosine {l}"] = np.divide(
            gram[:, l, 0, -1],
            d[:, l, 0] * d[:, l, -1],
            out=np.zeros(len(gram)),
            where=d[:, l, 0] * d[:, l, -1] > 1e-12,
        )
        out[f"dx0 x1 {l}"], out[f"dx3 x3 {l}"] = inner[:, l, 0, 1], inner[:, l, -1, -1]
        out[f"trace {l}"] = np.einsum("bii->b", inner[:, l])
    for name, θ in norms.items():
        for l in range(θ.shape[1]):
            out[f"θ{name} {l + 1}"] = θ[:, l]
        out[f"θ{name} 1 × forward"] = θ[:, 0] * cosine
    out["Θ"] = sum(θ.sum(1) for θ in norms.values())
    return out
