"""Is what is read what is drawn? Tables that no initialisation draws, matrices that
depend on one another, parts that the scale of an initialisation hides, factors of sums,
and what cannot be read: each beside fresh modules of torch, or with its sentence.
"""

import warnings

import numpy as np
import pytest
from conftest import nightly
from drawn_modules import LAWS, ROLES, SAID, SMALL, TEXT, H, L, Own, V, described, n
from drawn_modules import read, sines
from with_transformers import TORCH, torch

from infattn_nb import from_config, from_torch, initialise
from infattn_nb.huggingface import families, init_table

pytestmark = TORCH


def cosines(gram):
    "Mean over pairs of different tokens, after each block but the last norm."
    d = np.sqrt(np.einsum("nlii->nli", gram))
    C = gram / (d[..., :, None] * d[..., None, :])
    return C[..., *np.triu_indices(gram.shape[-1], 1)].mean(-1)[:, : L + 1]


def theirs(make, seeds=200):
    found = []
    for seed in range(seeds):
        module = make(seed)
        with torch.no_grad():
            module(torch.tensor([TEXT]))
        x = torch.stack(module.seen)[:, 0].double()
        found.append((x @ x.mT / n).numpy())
    return cosines(np.array(found))


def apart(a, b):
    "Means of two samples, in standard errors: the largest of all columns."
    error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
    return (abs(a.mean(0) - b.mean(0)) / error.clip(1e-9)).max()


# Tables


@pytest.mark.power("mean cosines 8 standard errors of 200 networks apart, each block")
@pytest.mark.parametrize("name", nightly(LAWS, "frozen", "learned", "rezero", "buffer"))
@pytest.mark.long
def test_fresh_modules_have_the_cosines_of_the_chain(name):
    t = described(name, Own(**LAWS[name]))
    real = theirs(lambda seed: Own(seed, **LAWS[name]))
    assert apart(real, cosines(t.chain(size=2000, rng=1).gram)) < 6
    fixed = isinstance(t.random_embeddings, np.ndarray)
    assert fixed == (name in ("buffer", "frozen"))
    broken = {
        "buffer": lambda t: _drawn_positions(t),
        "frozen": lambda t: _drawn_positions(t),
        "scaled": lambda t: t.embedded(1 / n),
        "learned": lambda t: t.embedded(4.0),
        "biases": lambda t: t.altered(lambda a: dict(var_bv=0.0, var_bo=0.0)),
    }.get(name, lambda t: t.altered(None, None, lambda b: dict(branch_scale=0.05)))
    assert apart(real, cosines(broken(t).chain(size=2000, rng=1).gram)) > 8


def _drawn_positions(t):
    "As a reading by sizes alone has it: another row for each position."
    from dataclasses import replace

    known = np.diag(np.diag(t.cov - t.random_embeddings))
    return replace(t, cov=t.random_embeddings + known, random_embeddings=True, mean=0.0)


@pytest.mark.parametrize("kind", ("buffer", "frozen", "smooth"))
def test_tables_that_nothing_draws_stay_as_they_are(kind):
    module = Own(positions=kind)
    before = module.wpe.clone()
    t = read(module)
    initialise(t, module, 1)
    assert torch.equal(before, module.wpe)
    rows = init_table(t).set_index("parameter")
    assert rows.loc["wpe", "where"] == "given"
    assert np.isnan(rows.loc["wpe", "std"])
    assert (rows["where"] == "init").sum() == len(rows) - 1
    with pytest.raises(ValueError, match="cannot rescale a given table"):
        init_table(t.embedded(2.0))


def test_positions_of_several_texts_start_again():
    module = Own(positions="buffer")
    t = read(module, tokens=[[1, 2], [3, 4, 5]])
    P = sines(3).double().numpy()
    known = t.cov + np.outer(t.mean, t.mean) - t.random_embeddings
    rows = P[[0, 1, 0, 1, 2]]
    np.testing.assert_allclose(known, rows @ rows.T / n, atol=1e-6)


def shared_mean(W):
    W += 0.3 * W[0].clone()


def equal_rows(W):
    W[V // 2 :] = W[0].clone()


def low_rank(W):
    W.copy_(W[:, :3] @ W[:3])


@pytest.mark.parametrize(
    "spoil, text",
    [
        (shared_mean, "different rows have cosines of"),
        (equal_rows, "different rows have cosines of"),
        (low_rank, "squares of inner products"),
    ],
)
def test_words_that_are_no_draws_are_rejected_with_the_way_on(spoil, text):
    module = Own()
    read(module)
    with torch.no_grad():
        spoil(module.wte.weight)
    with pytest.raises(ValueError, match=text) as e:
        read(module)
    assert "pass the input of the first block as `embeddings`" in str(e.value)
    assert len(str(e.value).splitlines()) == 1
    X = module.wte.weight.detach()[TEXT]
    given = from_torch(
        module, X, roles=ROLES, heads=H, activation="gelu", mask="causal"
    )
    np.testing.assert_allclose(given.embeddings, X.numpy(), atol=1e-7)


# Matrices


def rand_for_randn(block):
    block.up.weight.copy_(torch.rand_like(block.up.weight))


def identities(block):
    for part in (block.v, block.o):
        part.weight.copy_(torch.eye(n))


def mimetic(block):
    block.v.weight.add_(0.4 * torch.eye(n))


def tied_keys(block):
    block.k.weight.copy_(block.q.weight)


def output_of_values(block):
    block.o.weight.copy_(block.v.weight.T)


def near_tied(block):
    block.k.weight.mul_(0.9).add_(0.4 * block.q.weight)


def down_of_up(block):
    block.down.weight.copy_(block.up.weight.T)


def shared_rows(block):
    block.q.weight.add_(0.5 * block.q.weight[:1].clone())


def columns_apart(block):
    block.up.weight[:, ::4].mul_(4)


def rows_apart(block):
    block.up.weight[::4].mul_(4)


def low_rank_values(block):
    block.v.weight.copy_(block.v.weight[:, :4] @ block.q.weight[:4])


WRONG = {
    rand_for_randn: r"matrix '1' in block 0 \(h\.\*\.up\).* their mean is 0\.8",
    identities: r"matrix 'v' in block 0 \(h\.\*\.v\).*the mean of the diagonal is",
    mimetic: r"the mean of the diagonal is \d\.",
    tied_keys: r"matrices 'q' and 'k' in block 0 \(h\.\*\.q, h\.\*\.k\).*of 1, where",
    output_of_values: "matrices 'v' and 'o' in block 0 .*correlation of 1, where",
    near_tied: r"matrices 'q' and 'k' in block 0 .*correlation of 0\.[34]",
    down_of_up: "matrices '1' and '2' in block 0 .*correlation of 1, where",
    shared_rows: "different rows have cosines of",
    columns_apart: "matrix '1' in block 0 .*rows or columns of different sizes",
    rows_apart: "matrix '1' in block 0 .*rows or columns of different sizes",
    low_rank_values: "squares of inner products",
}


@pytest.mark.parametrize("spoil", WRONG, ids=lambda f: f.__name__)
def test_matrices_that_are_no_draws_get_a_warning(spoil):
    "It names the tensor, the statistic and its size, and what chance allows for."
    module = Own()
    with torch.no_grad():
        for block in module.h:
            spoil(block)
    with pytest.warns(UserWarning, match=WRONG[spoil]):
        read(module)


def test_blocks_that_are_correlated_get_a_warning():
    module = Own()
    with torch.no_grad():
        module.h[1].down.weight.mul_(0.5).add_(0.8 * module.h[0].down.weight)
    with pytest.warns(
        UserWarning, match="matrices '2' in blocks 0 and 1 .*correlation"
    ):
        read(module)


@pytest.mark.power("every warning has a chance of less than 1e-7 in these 60 modules")
def test_draws_get_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(60):
            read(Own(seed, positions="learned"), verify=False)


# What the scale of an initialisation hides


def test_rezero_that_starts_at_zero():
    module = Own(alpha=0.0)
    t = read(module, roles=dict(branch_scale="h.*.alpha"))
    assert all(b.branch_scale == 0 for b in t.blocks)
    initialise(t, module, 0)
    assert all(float(block.alpha) == 0 for block in module.h)
    hidden = Own(alpha=0.0, rotary=10.0)
    with pytest.raises(ValueError, match="must run like its description"):
        read(hidden, roles=dict(branch_scale="h.*.alpha"))


# What cannot be read


@pytest.mark.parametrize("name", SAID)
def test_one_sentence_says_why(name):
    make, text = SAID[name]
    with pytest.raises((ValueError, TypeError), match=text) as e:
        from_torch(make(), texts=4)
    assert len(str(e.value).splitlines()) == 1


# A family by the file alone


@pytest.fixture
def lines(monkeypatch):
    "A section that is like Gemma, under another name."
    section = dict(like="gemma", prefix="body.")
    monkeypatch.setitem(families.FAMILIES_TOML["family"], "emerald", section)
    made_of = families.Family.of_section(**families._section("emerald"))
    monkeypatch.setitem(families.FAMILIES, "emerald", made_of)
    monkeypatch.setattr(families, "MODELS", [*families.MODELS, "emerald"])
    monkeypatch.setattr("infattn_nb.huggingface.config.MODELS", families.MODELS)


def test_a_family_by_the_file_alone(lines):
    "Gains that are one plus their weight, the scale of words, the meaning of gelu."
    own = dict(
        **SMALL, head_dim=16, num_key_value_heads=1, hidden_act="gelu", vocab_size=50
    )
    as_gemma, as_other = (
        from_config(dict(model_type=kind, **own), TEXT) for kind in ("gemma", "emerald")
    )
    assert repr(as_gemma) == repr(as_other)
    np.testing.assert_array_equal(as_gemma.cov, as_other.cov)
    a, b = init_table(as_gemma), init_table(as_other)
    np.testing.assert_array_equal(a[["mean", "std"]], b[["mean", "std"]])
    gains = b[b["parameter"].str.contains("norm")]
    assert (gains["mean"] == 0).all()
    assert b["parameter"].str.startswith("body.").all()
