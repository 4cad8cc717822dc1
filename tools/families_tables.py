"""What Hugging Face's models do at random initialisation: the other side of tests/test_families.py, stored.

    python tools/families_tables.py [family …]

draws models of each configuration in tests/data/families/configs.json, at their own initialisation and with every matrix N(0, .15²), lets them read one
text, and writes Gram matrices after every block, with the entropies of all rows of weights, to tests/data/families/<family>.npz. Needs torch and transformers.
Values are rounded to sixteenths of their standard deviation; the test rounds its own in the same way. Nothing is downloaded.
"""
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers
from scipy.special import entr

FOLDER = Path(__file__).parent.parent/"tests"/"data"/"families"
TEXT, SD = [3, 1, 1, 1, 5], .15
SEEDS = dict(llama=1000, mistral=1000, qwen2=1000) # where heads share keys: that takes more to see; 500 of the others

def new_model(config, seed):
    "A model of a config, freshly initialised, that returns its weights of attention."
    torch.manual_seed(seed)
    c = transformers.AutoConfig.for_model(**config)
    c._attn_implementation = "eager"
    return transformers.AutoModel.from_config(c).eval()

def image(config):
    "Orthogonal patches of pixels ±1; the text's equal tokens are equal patches."
    p, side = config["patch_size"], config["image_size"]//config["patch_size"]
    H = np.array([[1.]])
    while len(H) < p*p:
        H = np.block([[H, H], [H, -H]])
    patches = H[TEXT[:side*side]].reshape(side, side, p, p)
    return torch.tensor(patches.transpose(0, 2, 1, 3).reshape(1, 1, side*p, side*p), dtype=torch.float32)

def statistics(config, model):
    "Upper triangles of the Gram matrices and entropies, in one row."
    x = dict(pixel_values=image(config)) if config["model_type"] == "vit" else dict(input_ids=torch.tensor([TEXT]))
    with torch.no_grad():
        y = model(**x, output_hidden_states=True, output_attentions=True)
    X = torch.stack(y.hidden_states)[:, 0].double().numpy()
    A = torch.stack(y.attentions)[:, 0].double().numpy()
    gram = X @ X.swapaxes(-1, -2)/X.shape[-1]
    upper = np.triu_indices(X.shape[1])
    return np.concatenate([gram[:, upper[0], upper[1]].ravel(), entr(A).sum(-1)[..., -1].ravel()])

def gaussian(model, seed):
    "Every matrix N(0, SD²)."
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        if p.squeeze().ndim > 1 or p.ndim > 1:
            p.data.normal_(0, SD, generator=generator)
    return model

def table(config):
    "Of both initialisations: mean, step, rounded values."
    seeds = range(SEEDS.get(config["model_type"], 500))
    model = new_model(config, 0)
    own = np.array([statistics(config, new_model(config, seed)) for seed in seeds])
    normal = np.array([statistics(config, gaussian(model, seed)) for seed in seeds])
    packed = {}
    for name, x in dict(own=own, gaussian=normal).items():
        mean, step = x.mean(0), np.maximum(x.std(0), 1e-12)/16
        steps = np.clip(np.rint((x - mean)/step), -127, 127)
        packed |= {f"{name}_mean": mean, f"{name}_step": step, name: steps.astype(np.int8)}
    return packed

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    configs = json.loads((FOLDER/"configs.json").read_text(encoding="utf-8"))
    for name in sys.argv[1:] or configs:
        np.savez_compressed(FOLDER/f"{name}.npz", **table(configs[name]))
        print(name, (FOLDER/f"{name}.npz").stat().st_size, flush=True)
