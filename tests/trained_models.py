"""Three small models, how they are trained, and what is looked at: shared by
tools/tables.py, which trains them in torch, and tests/laws/test_trained_models.py.
"""

KINDS = "gpt2", "llama", "gemma2"
WIDTHS = 16, 48
STEPS = 5
AT = 0, 2, 5  # steps at which a loss and a weight of attention are stored
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
SHARED = dict(
    vocab_size=12,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    max_position_embeddings=16,
    pad_token_id=None,
    bos_token_id=1,
    eos_token_id=2,
)
OWN = dict(
    gpt2=dict(n_layer=1, n_head=2, n_positions=16, attn_pdrop=0.0, resid_pdrop=0.0)
    | dict(embd_pdrop=0.0),
    llama=dict(num_key_value_heads=1, tie_word_embeddings=False),
    gemma2=dict(num_key_value_heads=1, sliding_window=4, query_pre_attn_scalar=8),
)


def config(kind, n):
    "A model of width n whose scores are of size one."
    sizes = dict(hidden_size=n, intermediate_size=2 * n, initializer_range=n**-0.5)
    sizes |= dict(n_embd=n) if kind == "gpt2" else {}
    sizes |= dict(head_dim=n // 2) if kind == "gemma2" else {}
    return dict(model_type=kind) | SHARED | OWN[kind] | sizes


def rule(kind):
    "Optimizer, learning rate, momentum."
    return dict(
        gpt2=("sgd", 0.05, 0.9), llama=("adamw", 0.01, 0.0), gemma2=("adam", 0.003, 0.0)
    )[kind]
