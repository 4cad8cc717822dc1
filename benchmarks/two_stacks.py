"""Encoders with decoders, and latent attention, against torch: networks of T5's and of
MiniCPM 3's kind, n = 512; weights, forward and backward pass.

    python benchmarks/two_stacks.py

prints one table and writes it to nbs/data/benchmarks_two_stacks.json.
Processor time, best of several repetitions, all sides of a ratio in turn, one thread,
float64. Needs torch and transformers; nothing is downloaded.
"""

from beside_torch import main, seconds  # before numpy: it sets one thread

import numpy as np
import torch
import transformers

from infattn_nb import from_config

N, REPETITIONS = 512, 4
T5 = dict(d_model=N, d_kv=64, d_ff=2048, num_layers=3, num_heads=8, vocab_size=256)
MINICPM = dict(
    hidden_size=N,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=8,
    intermediate_size=1280,
    q_lora_rank=192,
    kv_lora_rank=64,
    qk_nope_head_dim=32,
    qk_rope_head_dim=16,
    v_head_dim=64,
    vocab_size=256,
    pad_token_id=None,
)


def in_torch(kind, entries, texts, backward):
    "A call that draws all weights and reads the texts, possibly with gradients."
    config = transformers.AutoConfig.for_model(kind, **entries)
    module = transformers.AutoModel.from_config(config).double().eval()
    first, *others = (torch.tensor([text]) for text in texts)
    given = dict(decoder_input_ids=others[0]) if others else {}
    r = torch.randn(N, dtype=torch.float64) / N**0.5

    def call():
        with torch.no_grad():
            for p in module.parameters():
                if p.ndim > 1:
                    p.normal_(0, 0.05)
            if not backward:
                return module(first, **given)
        module.zero_grad()
        (module(first, **given).last_hidden_state[0, -1] @ r).backward()
        return [float((p.grad**2).sum()) for p in module.parameters()]

    return call


def rows():
    for kind, name, entries in (
        ("t5", "T5, 3 + 3 layers", T5),
        ("minicpm3", "MiniCPM 3, 4 blocks", MINICPM),
    ):
        for s in (16, 64):
            words = list(range(1, s + 1))
            texts = (words[: s // 2], words[s // 2 :]) if kind == "t5" else [words]
            given = texts if kind == "t5" else texts[0]
            net = from_config(entries | dict(model_type=kind), given)
            for passes, run in (("forward", net.chain), ("both passes", net.gradients)):
                theirs = in_torch(kind, entries, texts, passes != "forward")
                found = []
                for _ in range(REPETITIONS + 1):
                    each = [seconds(theirs)]
                    for n in (np.inf, N):
                        size = max(1, (256 if n == np.inf else 32) // s)
                        each.append(seconds(lambda: run(n, size, 0)) / size)
                    found.append(each)
                torchs, *ours = np.min(found[1:], axis=0)
                for law, value in zip(
                    ("limit", f"exact at n = {N}"), ours, strict=True
                ):
                    yield dict(
                        section="two texts" if kind == "t5" else "latent attention",
                        case=f"{name}, {s} tokens, {passes}: {law}",
                        value=value,
                        against=f"as fast as torch, weights and {passes}",
                        ratio=torchs / value,
                    )


if __name__ == "__main__":
    main(__doc__, "benchmarks_two_stacks", rows())
