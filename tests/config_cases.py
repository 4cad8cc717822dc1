"""Cases and helpers of several test files."""

LLAMA = dict(
    model_type="llama",
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=96,
)
