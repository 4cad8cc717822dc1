"""Small encoders with decoders, and two texts of different lengths, for tests in
tests/external. The source is padded, and one token is in both texts.
"""

import numpy as np
from with_transformers import torch, transformers

SOURCE = [5, 6, 5, 7, 8]
TARGET = [1, 6, 9]
STACKS = dict(
    d_model=16,
    encoder_layers=1,
    decoder_layers=2,
    encoder_attention_heads=2,
    decoder_attention_heads=4,
    encoder_ffn_dim=24,
    decoder_ffn_dim=40,
    vocab_size=30,
    max_position_embeddings=16,
    max_source_positions=16,
    max_target_positions=16,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
    forced_eos_token_id=None,
    init_std=0.4,
)
T5 = dict(
    d_model=16,
    d_kv=5,
    d_ff=24,
    num_layers=1,
    num_decoder_layers=2,
    num_heads=3,
    vocab_size=30,
    initializer_factor=1.3,
)
SOUND = "whisper", "speech_to_text"  # convolutions stand before their encoders
KINDS = dict.fromkeys("t5 mt5".split(), T5) | dict.fromkeys(
    "bart mbart pegasus marian m2m_100 blenderbot".split() + [*SOUND], STACKS
)
FLIPS = dict(  # entries that differ from the defaults
    t5=dict(feed_forward_proj="gated-silu", relative_attention_num_buckets=6),
    mt5=dict(feed_forward_proj="relu", relative_attention_max_distance=4),
    bart=dict(scale_embedding=True, activation_function="relu"),
    mbart=dict(scale_embedding=True, activation_function="tanh"),
    pegasus=dict(scale_embedding=True, activation_function="relu"),
    marian=dict(scale_embedding=True, activation_function="silu"),
    m2m_100=dict(scale_embedding=False, pad_token_id=3),
    blenderbot=dict(scale_embedding=True, activation_function="relu"),
    whisper=dict(scale_embedding=True, activation_function="relu"),
    speech_to_text=dict(scale_embedding=False, activation_function="gelu"),
)


def config(kind, **more):
    return transformers.AutoConfig.for_model(kind, **KINDS[kind] | more)


def model(config):
    "A fresh module with a head, in eval mode."
    auto = transformers.AutoModelForSeq2SeqLM
    if config.model_type in SOUND:
        auto = transformers.AutoModelForSpeechSeq2Seq
    return auto.from_config(config).eval()


def encoded(module, x):
    "What an encoder without its convolutions returns for tokens, (1, s, n)."
    encoder = module.get_encoder()
    for layer in encoder.layers:
        x = layer(x, None)
        x = x[0] if isinstance(x, tuple) else x
    return encoder.layer_norm(x)


def output(module):
    "Last hidden states of a module without a head, source and target, (s, n)."
    c = module.config
    target = torch.tensor([TARGET])
    with torch.no_grad():
        if c.model_type in SOUND:  # tokens stand in for what the convolutions return
            x = torch.randn(1, len(SOURCE), c.d_model)
            x[:, 2] = x[:, 0]
            x = encoded(module, x)
            about = dict(input_ids=target, encoder_hidden_states=x)
            y = module.get_decoder()(**about, use_cache=False).last_hidden_state
        else:
            pad = [c.pad_token_id] * 2
            seen = torch.tensor([[1] * len(SOURCE) + [0, 0]])
            found = module(
                input_ids=torch.tensor([SOURCE + pad]),
                attention_mask=seen,
                decoder_input_ids=target,
                use_cache=False,
            )
            x = found.encoder_last_hidden_state[:, : len(SOURCE)]
            y = found.last_hidden_state
    return torch.cat([x, y], 1)[0].double().numpy()


def grams(config, count):
    "Gram matrices of fresh modules, (count, s, s)."
    found = []
    for seed in range(count):
        torch.manual_seed(seed)
        x = output(transformers.AutoModel.from_config(config).eval())
        found.append(x @ x.T / config.d_model)
    return np.array(found)
