"""Models of transformers whose experts are lists of modules, as before release 5."""

from with_transformers import torch


class Listed(torch.nn.Module):
    "The mixture of an OLMoE or Qwen, or with other names of a Mixtral."

    def __init__(self, n, units, experts, chosen, names, normed=True, bias=False):
        super().__init__()
        linear = torch.nn.Linear
        self.gate = linear(n, experts, bias=False)
        self.experts = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {
                    names[0]: linear(n, units, bias=bias),
                    names[1]: linear(units, n, bias=bias),
                    names[2]: linear(n, units, bias=bias),
                    "act_fn": torch.nn.SiLU(),
                }
            )
            for _ in range(experts)
        )
        self.names = names
        self.top_k = chosen
        self.norm_topk_prob = normed

    def forward(self, hidden):
        x = hidden.reshape(-1, hidden.shape[-1])
        p, chosen = torch.softmax(self.gate(x), -1).topk(self.top_k, -1)
        if self.norm_topk_prob:
            p = p / p.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        into, out, gate = self.names
        for e, expert in enumerate(self.experts):
            own = (p * (chosen == e)).sum(-1, keepdim=True)
            h = expert["act_fn"](expert[into](x)) * expert[gate](x)
            y = y + own * expert[out](h)
        return y.reshape(hidden.shape)


class OldLayer(torch.nn.Module):
    "A block of Mixtral, whose mixture is called block_sparse_moe."

    def __init__(self, layer, mixture):
        super().__init__()
        self.self_attn = layer.self_attn
        self.input_layernorm = layer.input_layernorm
        self.post_attention_layernorm = layer.post_attention_layernorm
        self.block_sparse_moe = mixture

    def forward(self, x, **more):
        x = x + self.self_attn(hidden_states=self.input_layernorm(x), **more)[0]
        return x + self.block_sparse_moe(self.post_attention_layernorm(x))


def with_lists(model, **more):
    "The same model, with the weights of its experts in lists."
    c = model.config
    body = model.base_model
    old = c.model_type == "mixtral"
    names = ("w1", "w2", "w3") if old else ("gate_proj", "down_proj", "up_proj")
    for l, layer in enumerate(body.layers):
        if not hasattr(layer.mlp, "experts"):
            continue
        given = layer.mlp.experts
        m, n, units = given.down_proj.shape
        normed = getattr(c, "norm_topk_prob", True)
        how = dict(names=names, normed=normed) | more
        mixture = Listed(n, units, m, c.num_experts_per_tok, **how)
        with torch.no_grad():
            mixture.gate.weight.copy_(layer.mlp.gate.weight)
            for e, expert in enumerate(mixture.experts):
                both = given.gate_up_proj[e].chunk(2)
                expert[names[0]].weight.copy_(both[0])
                expert[names[2]].weight.copy_(both[1])
                expert[names[1]].weight.copy_(given.down_proj[e])
        if old:
            body.layers[l] = OldLayer(layer, mixture)
        else:
            layer.mlp = mixture
    return model
