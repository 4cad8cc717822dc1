"""What it costs to train a model that was read: two blocks of Llama's kind, by us and
by torch, forward, backward and the optimizer, in one run.

    python benchmarks/models.py [sgd adam growth adapters]

writes nbs/data/benchmarks_models.json; if some parts are named, they are printed and
not written. Each number is of a process of its own, with the weights drawn in it. Torch
has float64, as we have, and float32. At width 8,192 torch's matrices, gradients and
momenta take 24 GB in float64, so that only float32 is measured there (12 GB). With
adapters, of rank 8 on queries and values, trained by Adam, both are. Heads: eight at
every width. Needs torch and transformers.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from stored import store

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

HOW = dict(sgd=dict(learning_rate=1e-3, momentum=0.9), adam=dict(learning_rate=1e-4))
VOCABULARY = 64
ADAPTERS = dict(rank=8, alpha=16, on=("q", "v"))


def config(n, heads=8, layers=2):
    "Grouped queries, rotary positions, a gated MLP of n units, an untied head."
    return dict(
        model_type="llama",
        hidden_size=n,
        intermediate_size=n,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        vocab_size=VOCABULARY,
        max_position_embeddings=128,
        initializer_range=n**-0.5,
        tie_word_embeddings=False,
    )


def text(tokens):
    return [7 * i * i % VOCABULARY for i in range(tokens)]


def ours(n, tokens, steps, optimizer="sgd", adapters=None, **more):
    "A run of `train`, matrices unknown or explicit as it chooses."
    from infattn_nb import from_config, train
    from infattn_nb.huggingface import next_tokens

    net = from_config(config(n, **more), [text(tokens)])
    program, logits = net.program(readout="lm", adapters=adapters)
    return train(
        program,
        logits,
        next_tokens(net),
        width=n,
        steps=steps,
        size=1,
        rng=0,
        optimizer=optimizer,
        parametrization="standard",
        loss="softmax",
        reduction="mean",
        matrices="adapters" if adapters else None,
        verbose=False,
        **HOW[optimizer],
    ).loss


def adapt(model, rank, alpha, on):
    "Freeze a model of torch, and add (α/r) B A x to the layers named."
    import torch

    model.requires_grad_(False)

    def added(layer, x, y):
        return y + alpha / rank * (x[0] @ layer.A.T) @ layer.B.T

    for name, layer in model.named_modules():
        if name.endswith(tuple(f"{key}_proj" for key in on)):
            n = layer.in_features
            start = (2 * torch.rand(rank, n) - 1) * n**-0.5
            layer.A = torch.nn.Parameter(start)
            layer.B = torch.nn.Parameter(torch.zeros(layer.out_features, rank))
            layer.register_forward_hook(added)


def in_torch(n, tokens, steps, optimizer="sgd", dtype="float64", adapters=None, **more):
    "The same model, autograd and torch's own optimizer."
    import torch
    import transformers

    torch.set_num_threads(1)
    entries = config(n, **more)
    kind = transformers.AutoConfig.for_model(entries.pop("model_type"), **entries)
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, dtype))
    model = transformers.AutoModelForCausalLM.from_config(kind).train()
    if adapters:
        adapt(model, **adapters)
    ids = torch.tensor([text(tokens)])
    makes = dict(sgd=torch.optim.SGD, adam=torch.optim.Adam)[optimizer]
    how = {"lr" if k == "learning_rate" else k: x for k, x in HOW[optimizer].items()}
    descent = makes([p for p in model.parameters() if p.requires_grad], **how)
    losses = []
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(model(ids).logits[0, :-1], ids[0, 1:])
        losses.append(loss.item())
        descent.zero_grad()
        loss.backward()
        descent.step()
    return losses


def measured(call, small):
    "Processor seconds and GiB of a call, in a process of its own."
    code = (
        "import resource, sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import models\n"
        f"models.{small}\n"
        "t = time.process_time()\n"
        f"models.{call}\n"
        "memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20\n"
        "print(time.process_time() - t, memory)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    seconds, memory = map(float, out.split()[-2:])
    return dict(seconds=seconds, GiB=memory)


SIZES = {512: 10, 2048: 6, 8192: 3}  # width: steps
TORCH = {512: ("float64", "float32"), 2048: ("float64", "float32"), 8192: ("float32",)}


def beside(n, tokens, steps, optimizer="sgd", dtypes=("float64",), **more):
    "Seconds of torch over ours, and the memory of both."
    options = ", ".join(
        f"{k}={x!r}" for k, x in dict(optimizer=optimizer, **more).items()
    )
    own = measured(f"ours({n}, {tokens}, {steps}, {options})", "ours(32, 4, 1)")
    row = dict(width=n, tokens=tokens, steps=steps, optimizer=optimizer, **more)
    row |= {"ours, seconds": own["seconds"], "ours, GiB": own["GiB"]}
    for dtype in dtypes:
        call = f"in_torch({n}, {tokens}, {steps}, {options}, dtype={dtype!r})"
        other = measured(call, "in_torch(32, 4, 1)")
        row[f"torch {dtype} over ours"] = other["seconds"] / own["seconds"]
        row[f"torch {dtype}, GiB"] = other["GiB"]
    print(row, flush=True)
    return row


def grown(**over):
    "Our seconds along one of n, tokens and steps, over the first."
    base = dict(n=2048, tokens=12, steps=4)
    ((name, values),) = over.items()
    found = []
    for x in values:
        own = base | {name: x}
        call = f"ours({own['n']}, {own['tokens']}, {own['steps']})"
        found.append(measured(call, "ours(32, 4, 1)")["seconds"])
    return dict(along=name, values=values, over_first=[t / found[0] for t in found])


def sgd():
    rows = [
        beside(n, tokens, steps, dtypes=TORCH[n])
        for n, steps in SIZES.items()
        for tokens in (12, 64)
    ]
    rows.append(beside(2048, 12, 6, dtypes=TORCH[2048], heads=32))
    widest = measured("ours(100_000, 12, 2)", "ours(32, 4, 1)")
    return dict(sgd=rows, width_100_000=dict(tokens=12, steps=2) | widest)


def adam():
    sizes = [(n, tokens) for n in (512, 1024) for tokens in (12, 64)]
    return dict(adam=[beside(n, tokens, 10, "adam") for n, tokens in sizes])


def growth():
    along = dict(n=[1024, 2048, 4096], tokens=[6, 12, 24, 48], steps=[2, 4, 8, 16])
    return dict(growth=[grown(**{name: values}) for name, values in along.items()])


def adapters():
    rows = [
        beside(n, tokens, 10, "adam", TORCH[512], adapters=ADAPTERS)
        for n in SIZES
        for tokens in (12, 64)
    ]
    call = f"ours(100_000, 12, 10, 'adam', {ADAPTERS})"
    return dict(
        adapters=[
            *rows,
            dict(width=100_000, tokens=12, steps=10) | measured(call, "ours(32, 4, 1)"),
        ]
    )


PARTS = dict(sgd=sgd, adam=adam, growth=growth, adapters=adapters)


def main(parts):
    table = {}
    for part in parts or PARTS:
        table |= PARTS[part]()
    if not parts:
        store("benchmarks_models", **table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [*PARTS, []]  # Python 3.11 looks for no names among the choices, too
    parser.add_argument("parts", nargs="*", choices=every, metavar="part")
    main(parser.parse_args().parts)
