"Small shapes of the families that are read, for tests/external."

import numpy as np
from with_transformers import torch, transformers


def _clipped_at_infinity(own):
    "Clamping by None is an error of newer releases of torch."

    def made(self, *args, **kwargs):
        own(self, *args, **kwargs)
        if self.clip_qkv is None:
            self.clip_qkv = np.inf

    return made


_OF_DBRX = transformers.models.dbrx.modeling_dbrx.DbrxAttention
_OF_DBRX.__init__ = _clipped_at_infinity(_OF_DBRX.__init__)
n = 48
BASE = dict(
    vocab_size=24,
    hidden_size=n,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    initializer_range=0.15,
)
GROUPED = dict(num_key_value_heads=2)
CLIPPED = dict(clip_qkv=0.6)
OF_QWEN = GROUPED | dict(
    num_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=72,
    num_hidden_layers=3,
    mlp_only_layers=[1],
    initializer_range=0.2,
)
FAMILIES = dict(
    gpt2=dict(n_embd=n, n_layer=2, n_head=4),
    bert={},
    roberta={},
    **{"xlm-roberta": {}},
    camembert={},
    electra=dict(embedding_size=32),
    distilbert=dict(dim=n, n_layers=2, n_heads=4, hidden_dim=96),
    llama=GROUPED,
    mistral=GROUPED | dict(sliding_window=3),
    qwen2=GROUPED,
    qwen3=GROUPED | dict(head_dim=12),
    olmo2=GROUPED,
    smollm3=GROUPED | dict(num_hidden_layers=4),
    granite=GROUPED
    | dict(residual_multiplier=0.4, attention_multiplier=0.2, embedding_multiplier=3.0),
    stablelm=GROUPED | dict(partial_rotary_factor=0.5),
    cohere=GROUPED,
    starcoder2=GROUPED,
    gptj=dict(n_embd=n, n_layer=2, n_head=4, rotary_dim=4),
    opt=dict(ffn_dim=96, word_embed_proj_dim=n),
    falcon={},
    phi=GROUPED,
    phi3=GROUPED,
    gpt_neox=dict(rotary_pct=0.5),
    mpt=dict(d_model=n, n_layers=2, n_heads=4, max_seq_len=32, attn_config=CLIPPED),
    gemma=GROUPED | dict(head_dim=12),
    gemma2=GROUPED | dict(head_dim=12, sliding_window=3),
    gemma3_text=GROUPED | dict(head_dim=12, sliding_window=3),
    vit=dict(image_size=8, patch_size=4, num_channels=1),
    ernie4_5=GROUPED | dict(head_dim=12),
    helium=GROUPED | dict(head_dim=12),
    glm=GROUPED | dict(head_dim=16),
    glm4=GROUPED | dict(head_dim=16),
    arcee=GROUPED,
    jais2=GROUPED,
    olmo3=GROUPED | dict(sliding_window=3, num_hidden_layers=4),
    **{"megatron-bert": {}, "xlm-roberta-xl": {}, "roberta-prelayernorm": {}},
    gpt_bigcode=dict(n_embd=n, n_layer=2, n_head=4),
    bloom=dict(n_layer=2, n_head=4),
    mixtral=GROUPED
    | dict(num_local_experts=5, num_experts_per_tok=2, sliding_window=3),
    qwen3_moe=OF_QWEN | dict(head_dim=12),
    olmoe=GROUPED | dict(num_experts=6, num_experts_per_tok=3),
    gpt_oss=GROUPED
    | dict(
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=3,
        swiglu_limit=2.0,
        initializer_range=0.3,
    ),
    vaultgemma=GROUPED | dict(head_dim=12, sliding_window=3),
    olmo=GROUPED | CLIPPED,
    cohere2=GROUPED | dict(sliding_window=3, num_hidden_layers=4),
    nemotron=GROUPED,
    exaone4=GROUPED | dict(sliding_window=3, num_hidden_layers=4),
    hunyuan_v1_dense=GROUPED | dict(head_dim=12),
    seed_oss=GROUPED | dict(head_dim=16),
    ministral=GROUPED | dict(head_dim=16, sliding_window=3),
    persimmon={},
    gpt_neo=dict(
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=3,
        max_position_embeddings=32,
    ),
    codegen=dict(n_embd=n, n_layer=2, n_head=4, rotary_dim=4),
    nomic_bert={},
    clip_text_model=dict(max_position_embeddings=32),
    modernbert=dict(local_attention=4, num_hidden_layers=3),
    granitemoe=GROUPED
    | dict(num_local_experts=4, num_experts_per_tok=2, attention_multiplier=0.3),
    phimoe=GROUPED | dict(num_local_experts=5, num_experts_per_tok=2),
    qwen2_moe=OF_QWEN | dict(shared_expert_intermediate_size=40),
    glm4_moe=GROUPED
    | dict(
        head_dim=12,
        n_routed_experts=6,
        num_experts_per_tok=2,
        n_group=3,
        topk_group=2,
        routed_scaling_factor=1.5,
        moe_intermediate_size=72,
        n_shared_experts=2,
        num_hidden_layers=3,
        use_qk_norm=True,
    ),
    ernie4_5_moe=GROUPED
    | dict(
        moe_num_experts=5,
        moe_k=2,
        moe_intermediate_size=40,
        moe_num_shared_experts=2,
        num_hidden_layers=3,
    ),
    dbrx=dict(
        d_model=n,
        n_heads=4,
        n_layers=2,
        attn_config=CLIPPED | dict(kv_n_heads=2, rope_theta=1e4),
        ffn_config=dict(
            moe_num_experts=5,
            moe_top_k=3,
            ffn_hidden_size=64,
            moe_normalize_expert_weights=2.0,
        ),
    ),
    llama4_text=GROUPED
    | dict(
        head_dim=12,
        intermediate_size_mlp=80,
        num_local_experts=4,
        num_hidden_layers=4,
        interleave_moe_layer_step=2,
        no_rope_layer_interval=3,
        attention_chunk_size=4,
        initializer_range=0.25,
    ),
    mpnet=dict(pad_token_id=1, max_position_embeddings=32),
    esm=dict(max_position_embeddings=32, position_embedding_type="absolute"),
)
IMAGE = dict(image_size=8, patch_size=4, num_channels=1)
SOUND = dict(
    conv_dim=(16, 16),
    conv_stride=(5, 2),
    conv_kernel=(10, 3),
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=4,
)
BODIES = dict(  # behind given tokens: entries, and the part that receives the tokens
    deit=IMAGE,
    vit_mae=IMAGE,
    beit=IMAGE | dict(layer_scale_init_value=0.6),
    dinov2=IMAGE | dict(layerscale_value=0.7, mlp_ratio=2),
    dinov3_vit=IMAGE | dict(num_register_tokens=2, layerscale_value=0.7),
    clip_vision_model=IMAGE,
    siglip_vision_model=IMAGE,
    wav2vec2=SOUND,
    hubert=SOUND | dict(do_stable_layer_norm=True),
    **{
        "audio-spectrogram-transformer": dict(
            max_length=24, num_mel_bins=8, patch_size=4, time_stride=4
        )
    },
)
FAMILIES |= BODIES
MIXTURES = tuple(
    "mixtral qwen3_moe olmoe gpt_oss granitemoe phimoe "
    "qwen2_moe glm4_moe ernie4_5_moe dbrx llama4_text".split()
)
LATENT = dict(
    num_key_value_heads=4,
    q_lora_rank=20,
    kv_lora_rank=12,
    qk_rope_head_dim=4,
    qk_nope_head_dim=6,
    v_head_dim=10,
)
OF_DEEPSEEK = LATENT | dict(
    n_routed_experts=6,
    num_experts_per_tok=2,
    n_group=3,
    topk_group=2,
    moe_intermediate_size=24,
    first_k_dense_replace=1,
    num_hidden_layers=3,
)
LATENTS = dict(  # of which configs alone are read
    deepseek_v3=OF_DEEPSEEK,
    deepseek_v2=OF_DEEPSEEK
    | dict(topk_method="group_limited_greedy", initializer_range=0.2),
    minicpm3=LATENT | dict(initializer_range=0.25),
)
RENAMED = (  # whose parts other families have too: nightly
    "exaone4 seed_oss ministral deit vit_mae dinov2 clip_vision_model hubert "
    "audio-spectrogram-transformer clip_text_model granitemoe"
).split()


def config(kind, **more):
    own = (FAMILIES | LATENTS)[kind]
    c = transformers.AutoConfig.for_model(kind, **BASE | own | more)
    c._attn_implementation = "eager"
    c._experts_implementation = "eager"  # others have no double precision
    return c


def model(kind, seed=0, **more):
    torch.manual_seed(seed)
    return transformers.AutoModel.from_config(config(kind, **more)).eval()


def stream_of_body(module, given):
    """The streams (s, n) of a body whose tokens are given, before the first block,
    after every block, and after the last norm; `given` makes tokens of a shape.
    """
    from infattn_nb.huggingface.recognise import blocks_of, body_of

    body = body_of(module)
    blocks = blocks_of(body)
    stable = getattr(body.config, "do_stable_layer_norm", True)
    first = getattr(body, "pre_layrnorm", None if stable else body.encoder.layer_norm)
    seen = []

    def put(part, args):
        X = given(*args[0].shape[1:])
        return (args[0].new_tensor(X)[None], *args[1:])

    def note(part, args, out):
        seen.append(out[0] if isinstance(out, tuple) else out)

    handles = [(first or blocks[0]).register_forward_pre_hook(put)]
    handles.append(blocks[0].register_forward_pre_hook(lambda _, x: seen.append(x[0])))
    handles += [block.register_forward_hook(note) for block in blocks]
    rng = np.random.default_rng(0)
    c = body.config
    shape = (120,)
    if body.main_input_name == "pixel_values":
        shape = (c.num_channels, c.image_size, c.image_size)
    elif hasattr(c, "num_mel_bins"):
        shape = (c.max_length, c.num_mel_bins)
    like = next(body.parameters())
    x = like.detach().new_tensor(rng.standard_normal((1, *shape)))
    with torch.no_grad():
        y = body(**{body.main_input_name: x}).last_hidden_state
    for handle in handles:
        handle.remove()
    return [x[0].double().numpy() for x in (*seen[:-1], y)]
