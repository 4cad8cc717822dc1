"""µP from random starts beside torch with groups set by hand: heads of a constant
standard deviation, logits times base/n (Yang and others 2022, Table 8).
"""

import numpy as np
import pytest
from with_transformers import TORCH, torch, transformers

from infattn_nb import train
from infattn_nb.huggingface import next_tokens, widened

pytestmark = [*TORCH, pytest.mark.slow]
BASE, SD, IDS, SIZE = 32, 0.05, [3, 1, 4, 1, 5, 9, 2, 6], 60


def shape(n, tied):
    heads = n // 8
    return dict(
        hidden_size=n,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        num_hidden_layers=1,
        intermediate_size=2 * n,
        vocab_size=10,
        initializer_range=SD * np.sqrt(BASE / n),
        tie_word_embeddings=tied,
    )


def ours(n, tied, optimizer, rate):
    config = dict(model_type="llama") | shape(BASE, tied)
    net = widened(config, [IDS], n)
    program, logits = net.program(readout="lm")
    run = train(
        program,
        logits,
        next_tokens(net),
        width=n,
        steps=3,
        size=SIZE,
        rng=0,
        optimizer=optimizer,
        learning_rate=rate,
        loss="softmax",
        reduction="mean",
        parametrization="mup",
        base_width=BASE,
        verbose=False,
    )
    return np.asarray(run.outputs)


def theirs(n, tied, optimizer, rate):
    found = []
    m = n / BASE
    for seed in range(SIZE):
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(**shape(n, tied), pad_token_id=None)
        model = transformers.LlamaForCausalLM(config).double()
        tables = [model.model.embed_tokens.weight]
        tables += [] if tied else [model.lm_head.weight]
        for x in tables:
            torch.nn.init.normal_(x, 0, SD)
        groups = []
        for x in model.parameters():
            table = any(x is y for y in tables)
            hidden = x.ndim == 2 and not table
            power = (
                (0 if hidden else 1) if optimizer == "sgd" else (-1 if hidden else 0)
            )
            groups.append(dict(params=[x], lr=rate * m**power))
        rule = dict(sgd=torch.optim.SGD, adam=torch.optim.Adam)[optimizer](groups)
        ids = torch.tensor([IDS])
        logits = []
        for _ in range(4):
            z = model(input_ids=ids).logits[0, :-1] / m
            logits.append(z.detach().numpy())
            rule.zero_grad()
            torch.nn.functional.cross_entropy(z, ids[0, 1:]).backward()
            rule.step()
        found.append(logits)
    return np.array(found)


def sizes(z):
    "Of each network: of logits at the start, and of their changes in 1 and 3 steps."
    changes = [np.abs(z[:, k] - z[:, 0]).mean((1, 2)) for k in (1, 3)]
    return np.stack([np.sqrt((z[:, 0] ** 2).mean((1, 2))), *changes], 1)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("optimizer", "rate"), [("sgd", 0.3), ("adam", 0.003)])
@pytest.mark.power("six standard errors of a mean over 60 networks, half of it")
def test_mup_starts_and_moves_as_in_torch(tied, optimizer, rate):
    n = 128
    a = sizes(ours(n, tied, optimizer, rate))
    b = sizes(theirs(n, tied, optimizer, rate))
    error = np.sqrt((a.var(0, ddof=1) + b.var(0, ddof=1)) / SIZE)
    apart = abs(a.mean(0) - b.mean(0))
    assert (apart < 6 * error).all(), (a.mean(0), b.mean(0), error)
    assert (6 * error < 0.5 * b.mean(0)).all()  # a factor of √(n/base) = 2 is seen
