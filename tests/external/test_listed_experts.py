"""Experts in lists of modules, and mixtures that are not accepted."""

from copy import deepcopy

import numpy as np
import pytest
from listed_experts import with_lists
from model_families import MIXTURES, model
from with_transformers import TORCH, torch
from wrong_calls import rejects

from infattn_nb import from_torch, weights_of
from infattn_nb.huggingface import init_table, initialise
from infattn_nb.transformer.parts import same as equal_parts

pytestmark = TORCH
LISTED = MIXTURES[:3]
TEXTS = [[3, 4, 4, 5, 6, 7], [9, 10, 3, 3, 12]]


@pytest.mark.parametrize("kind", LISTED)
def test_lists_are_read_as_one_tensor(kind):
    "The same network and program; as with any module, it is run beside the reading."
    one = model(kind)
    two = with_lists(deepcopy(one))
    a, b = (from_torch(x, texts=TEXTS) for x in (one, two))
    assert a.source.kind == b.source.kind == kind
    assert all(equal_parts(*pair) for pair in zip(a.blocks, b.blocks, strict=True))
    of_a, of_b = weights_of(a, one), weights_of(b, two)
    assert of_a.keys() == of_b.keys()
    for name, x in of_a.items():
        np.testing.assert_array_equal(x, of_b[name])


@pytest.mark.parametrize("kind", LISTED)
def test_lists_are_initialised(kind):
    "Each expert anew, with the sizes of the table."
    two = with_lists(model(kind))
    net = from_torch(two, texts=TEXTS)
    before = [x.detach().clone() for x in two.parameters()]
    initialise(net, two, 1)
    after = dict(two.named_parameters())
    table = init_table(net).set_index("parameter")
    for (name, x), old in zip(after.items(), before, strict=True):
        if ".experts." in name:
            assert not (x == old).any()
            kind_of = "down" if "w2" in name or "down" in name else "gate_up"
            rows = table[table.index.str.contains(f"experts.{kind_of}_proj")]
            ratio = x.std().item() / rows["std"].to_numpy()
            assert abs(np.log(ratio)).min() < 6 / np.sqrt(2 * x.numel()) + 0.02
    weights = [x.detach().numpy() for n, x in after.items() if ".experts." in n]
    assert not np.array_equal(weights[0], weights[3])


def expert(module, l=0, e=1):
    return module.layers[l].mlp.experts[e]


def of_several_sizes():
    module = with_lists(model("olmoe"))
    expert(module)["gate_proj"] = torch.nn.Linear(48, 80, bias=False)
    return module


def with_biases():
    return with_lists(model("olmoe"), bias=True)


def with_biases_in_one_tensor():
    module = model("gpt_oss")
    with torch.no_grad():
        module.layers[1].mlp.experts.down_proj_bias += 0.1
    return module


def with_another_gate():
    module = with_lists(model("olmoe"))

    def halved(part, args, out):
        return 0.5 * out

    for layer in module.layers:
        layer.mlp.register_forward_hook(halved)
    return module


WRONG = [
    (of_several_sizes, "have experts of one size, got (96, 48) and (80, 48)"),
    (with_biases, "have experts whose biases are zero, as initialised, got values of"),
    (with_biases_in_one_tensor, "experts.down_proj_bias of block 1; set them to zero"),
    (with_another_gate, "run like its description, got an output of block 0"),
]


@pytest.mark.parametrize(("make", "said"), WRONG)
def test_mixtures_that_are_not_accepted(make, said):
    rejects(lambda: from_torch(make(), texts=TEXTS), said)


def test_biases_of_zeros_are_accepted():
    "As gpt-oss starts, and lists of layers with a bias."
    module = with_lists(model("olmoe"), bias=True)
    with torch.no_grad():
        for name, x in module.named_parameters():
            if name.endswith("bias"):
                x.zero_()
    assert from_torch(module, texts=TEXTS).blocks[0].feedforward.experts == 6
