"""Tiny random models of every architecture and variant, as Hugging Face folders and as GGUF files."""
import json
import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "weights"))
import hf_formats  # noqa: E402

VOCAB = 160

BASE = {"vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "eos_token_id": 2}
CLASSES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
           "qwen3": "Qwen3ForCausalLM"}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


def variant(model_type, dtype="F32", longest=0, **changes):
    config = {**BASE, "model_type": model_type, "architectures": [CLASSES[model_type]], **changes}
    return {"config": config, "dtype": dtype, "longest": longest}


# Name → what differs. `longest` is the max_model_len that matters to dynamic scaling.
VARIANTS = {
    "llama-mha": variant("llama", num_key_value_heads=4),
    "llama-mqa": variant("llama", num_key_value_heads=1),
    "llama-gqa-tied": variant("llama", tie_word_embeddings=True),
    "llama-biases": variant("llama", attention_bias=True, mlp_bias=True),
    "llama-head-dim-6": variant("llama", head_dim=6),
    "llama-head-dim-80": variant("llama", head_dim=80),
    "llama3-rope": variant("llama", rope_theta=500000.0, rope_scaling=LLAMA3),
    "llama-linear-rope": variant("llama", rope_scaling={"type": "linear", "factor": 4.0}),
    "llama-dynamic-rope": variant("llama", max_position_embeddings=64, longest=200,
                                  rope_scaling={"type": "dynamic", "factor": 6.0}),
    "llama-dynamic-rope-short": variant("llama", rope_scaling={"type": "dynamic", "factor": 6.0}),
    "llama-yarn": variant("llama", rope_scaling=YARN),
    "llama-yarn-mscale": variant("llama", rope_scaling={**YARN, "mscale": 0.7, "mscale_all_dim": 1.3}),
    "llama-yarn-attention-factor": variant("llama", rope_scaling={**YARN, "attention_factor": 1.25}),
    "llama-f16": variant("llama", dtype="F16"),
    "llama-bf16": variant("llama", dtype="BF16"),
    "mistral-window-4": variant("mistral", sliding_window=4),
    "mistral-window-16": variant("mistral", sliding_window=16),
    "mistral-no-window": variant("mistral", sliding_window=None),
    "qwen2": variant("qwen2"),
    "qwen2-tied-bf16": variant("qwen2", dtype="BF16", tie_word_embeddings=True),
    "qwen2-some-windows": variant("qwen2", use_sliding_window=True, sliding_window=9, max_window_layers=1),
    "qwen3": variant("qwen3", head_dim=16),
    "qwen3-tied-bf16": variant("qwen3", dtype="BF16", head_dim=16, tie_word_embeddings=True),
    "qwen3-attention-bias": variant("qwen3", head_dim=16, attention_bias=True),
}

# GGUF files: sizes that the blocks of the quantised types divide.
GGUF_SIZES = {"hidden_size": 64, "intermediate_size": 96}
GGUF_VARIANTS = {
    "gguf-llama-f32": (variant("llama", **GGUF_SIZES), 0),
    "gguf-llama-tied-f16": (variant("llama", tie_word_embeddings=True, **GGUF_SIZES), 1),
    "gguf-llama-biases-bf16": (variant("llama", attention_bias=True, **GGUF_SIZES), 30),
    "gguf-llama3-rope-q8_0": (variant("llama", rope_scaling=LLAMA3, **GGUF_SIZES), 8),
    "gguf-qwen2-q4_0": (variant("qwen2", **GGUF_SIZES), 2),
    "gguf-qwen3-q8_0": (variant("qwen3", head_dim=32, tie_word_embeddings=True, **GGUF_SIZES), 8),
}

# Quantised folders: the case of hf_formats.py that every projection of the layers is stored in. Projections that read
# the same inputs share an order of columns, as quantisers leave it; "-mixed": they do not.
QUANTIZED_SIZES = {"hidden_size": 128, "intermediate_size": 256}
QUANTIZED = ["awq-32", "awq-whole", "gptq-3", "gptq-4", "gptq-8", "gptq-8-sym", "gptq-4-desc-act",
             "gptq-4-desc-act-mixed", "w8a8", "w8a8-bf16-scales", "w8a8-asym", "w4a16", "w4a16-asym", "w4a16-g-idx",
             "w8a16", "fp8-tensor", "fp8-channel", "fp8-block", "fp8-e5m2", "llm-int8", "nf4", "nf4-nested",
             "sparse-bf16", "sparse-int8"]
QUANTIZED_VARIANTS = {"hf-" + name: name for name in QUANTIZED}


def make_tensors(config, seed):
    random = np.random.default_rng(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    matrix = lambda rows, columns: random.standard_normal((rows, columns)) * 1.5 / np.sqrt(columns)
    norm = lambda size: 1 + 0.2 * random.standard_normal(size)
    kind = config["model_type"]
    qkv_bias = kind == "qwen2" or config.get("attention_bias", False)
    o_bias = kind != "qwen2" and config.get("attention_bias", False)
    mlp_bias = config.get("mlp_bias", False)
    tensors = {"model.embed_tokens.weight": random.standard_normal((VOCAB, hidden)), "model.norm.weight": norm(hidden)}
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = matrix(VOCAB, hidden) * 2
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        for short, rows, columns, bias in [
                ("self_attn.q_proj", q, hidden, qkv_bias), ("self_attn.k_proj", kv, hidden, qkv_bias),
                ("self_attn.v_proj", kv, hidden, qkv_bias), ("self_attn.o_proj", hidden, q, o_bias),
                ("mlp.gate_proj", inner, hidden, mlp_bias), ("mlp.up_proj", inner, hidden, mlp_bias),
                ("mlp.down_proj", hidden, inner, mlp_bias)]:
            tensors[name + short + ".weight"] = matrix(rows, columns)
            if bias:
                tensors[name + short + ".bias"] = 0.5 * random.standard_normal(rows)
        tensors[name + "input_layernorm.weight"] = norm(hidden)
        tensors[name + "post_attention_layernorm.weight"] = norm(hidden)
        if kind == "qwen3":
            tensors[name + "self_attn.q_norm.weight"] = norm(head_dim)
            tensors[name + "self_attn.k_norm.weight"] = norm(head_dim)
    return tensors


def to_bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()


ENCODERS = {"F32": lambda v: v.astype("<f4").tobytes(), "F16": lambda v: v.astype("<f2").tobytes(), "BF16": to_bf16}


def write_folder(folder, config, tensors, dtype):
    write_entries(folder, config, {name: (dtype, list(tensor.shape), ENCODERS[dtype](tensor))
                                   for name, tensor in tensors.items()})


def write_entries(folder, config, entries):
    """`entries`: {name: (dtype, shape, bytes)}"""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    header, blob = {}, b""
    for name, (dtype, shape, data) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)


# ---- GGUF ----------------------------------------------------------------------------------------------------------

def to_q8_0(values):
    blocks = values.astype(np.float32).reshape(-1, 32)
    scale = (np.abs(blocks).max(axis=1) / 127).astype("<f2")
    out = np.zeros(len(blocks), np.dtype([("d", "<f2"), ("q", "i1", 32)]))
    out["d"] = scale
    out["q"] = np.clip(np.rint(blocks / np.maximum(scale.astype(np.float32), 1e-20)[:, None]), -127, 127)
    return out.tobytes()


def to_q4_0(values):
    blocks = values.astype(np.float32).reshape(-1, 32)
    scale = (np.abs(blocks).max(axis=1) / 7).astype("<f2")
    codes = np.clip(np.rint(blocks / np.maximum(scale.astype(np.float32), 1e-20)[:, None]), -8, 7).astype(np.int8) + 8
    out = np.zeros(len(blocks), np.dtype([("d", "<f2"), ("q", "u1", 16)]))
    out["d"] = scale
    out["q"] = codes[:, :16] | codes[:, 16:] << 4
    return out.tobytes()


GGUF_ENCODERS = {0: ENCODERS["F32"], 1: ENCODERS["F16"], 30: to_bf16, 8: to_q8_0, 2: to_q4_0}
GGUF_NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
              "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
              "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
              "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def write_gguf(path, config, tensors, kind):
    """As llama.cpp's converter: for the llama family the rows of Q and K are reordered so that rotary pairs are
    neighbours, and llama3 scaling is a tensor of divisors."""
    arch = config["model_type"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    string = lambda text: struct.pack("<Q", len(text.encode())) + text.encode()
    keys = []
    put = lambda key, type_id, data: keys.append(string(key) + struct.pack("<I", type_id) + data)
    put("general.architecture", 8, string(arch))
    for key, value in {"context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
                       "block_count": config["num_hidden_layers"], "feed_forward_length": config["intermediate_size"],
                       "attention.head_count": heads, "attention.head_count_kv": kv_heads,
                       "attention.key_length": head_dim, "attention.value_length": head_dim,
                       "rope.dimension_count": head_dim, "vocab_size": config["vocab_size"]}.items():
        put(f"{arch}.{key}", 4, struct.pack("<I", value))
    put(f"{arch}.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", config["rms_norm_eps"]))
    put(f"{arch}.rope.freq_base", 6, struct.pack("<f", config["rope_theta"]))
    texts = ["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(3, config["vocab_size"])]
    array = lambda type_id, items: struct.pack("<IQ", type_id, len(items)) + b"".join(items)
    put("tokenizer.ggml.model", 8, string("llama"))
    put("tokenizer.ggml.tokens", 9, array(8, [string(text) for text in texts]))
    put("tokenizer.ggml.scores", 9, array(6, [struct.pack("<f", -i) for i in range(len(texts))]))
    put("tokenizer.ggml.token_type", 9, array(5, [struct.pack("<i", 3 if i < 3 else 1) for i in range(len(texts))]))
    put("tokenizer.ggml.eos_token_id", 4, struct.pack("<I", 2))

    def neighbours(tensor, num_heads):
        return tensor.reshape(num_heads, 2, head_dim // 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)

    out = {}
    for name, tensor in tensors.items():
        part = name.split(".")
        if part[1] == "layers":
            short = ".".join(part[3:-1])
            if arch == "llama" and short in ("self_attn.q_proj", "self_attn.k_proj"):
                tensor = neighbours(tensor, heads if short.endswith("q_proj") else kv_heads)
            out[f"blk.{part[2]}.{GGUF_NAMES[short]}.{part[-1]}"] = tensor
        else:
            new = {"model.embed_tokens.weight": "token_embd", "model.norm.weight": "output_norm",
                   "lm_head.weight": "output"}[name]
            out[new + ".weight"] = tensor
    scaling = config.get("rope_scaling")
    if scaling:
        plain = config["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim)
        out["rope_freqs.weight"] = plain / llama3_frequencies(plain, scaling)

    info, blob = b"", b""
    for name, tensor in out.items():
        type_id = 0 if tensor.ndim == 1 else kind
        blob += b"\0" * (-len(blob) % 32)
        info += string(name) + struct.pack("<I", tensor.ndim) + \
            b"".join(struct.pack("<Q", size) for size in tensor.shape[::-1]) + struct.pack("<IQ", type_id, len(blob))
        blob += GGUF_ENCODERS[type_id](tensor)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(out), len(keys)) + b"".join(keys) + info
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_bytes(head + b"\0" * (-len(head) % 32) + blob)


def llama3_frequencies(plain, scaling):
    turns = scaling["original_max_position_embeddings"] * plain / (2 * np.pi)
    share = np.clip((turns - scaling["low_freq_factor"]) /
                    (scaling["high_freq_factor"] - scaling["low_freq_factor"]), 0, 1)
    return plain * share + plain / scaling["factor"] * (1 - share)


def make_quantized(name, folder, seed):
    """Writes the folder and returns (path, config, tensors) for the reference model: the weights as floats, and which
    of them meet activations that are rounded to 8 bits, in which order."""
    mixed = name.endswith("-mixed")
    case = hf_formats.CASES[QUANTIZED_VARIANTS[name].removesuffix("-mixed")]
    config = variant("llama", **QUANTIZED_SIZES)["config"]
    tensors, entries = make_tensors(config, seed), {}
    integer, orders = set(), {}
    random = np.random.default_rng(seed)
    for position, (key, tensor) in enumerate(tensors.items()):
        stem, part = key.rsplit(".", 1)
        if not stem.endswith("_proj") or part != "weight":
            entries[key] = ("F32", list(tensor.shape), ENCODERS["F32"](tensor))
            tensors[key] = tensor.astype(np.float32).astype(np.float64)
            continue
        first = not stem.endswith(("k_proj", "v_proj", "up_proj"))  # of those that read the same inputs
        stored, weights, order = case.make(random, *tensor.shape, order_seed=position if mixed else 0)
        entries |= {stem + suffix: entry for suffix, entry in stored.items()}
        tensors[key] = weights.astype(np.float64)
        if case.panel.startswith("int") and (first or not mixed):
            integer.add(key)
            if order is not None:
                orders[key] = order
    # What exporters leave in files and nothing needs: scales for an 8-bit cache; biases of zeros.
    entries["model.layers.0.self_attn.k_scale"] = ("F32", [], np.float32(0.1).tobytes())
    if "gptq" in name:
        entries["model.layers.1.mlp.up_proj.bias"] = ("F16", [config["intermediate_size"]], bytes(2 * config["intermediate_size"]))
    path = pathlib.Path(folder) / name
    write_entries(path, {**config, "quantization_config": case.config}, entries)
    return path, {**config, "integer_tensors": integer, "input_orders": orders}, tensors


def make(name, folder, seed):
    """Writes the variant and returns (path, longest)."""
    if name in GGUF_VARIANTS:
        spec, kind = GGUF_VARIANTS[name]
        path = pathlib.Path(folder) / f"{name}.gguf"
        write_gguf(path, spec["config"], make_tensors(spec["config"], seed), kind)
    else:
        spec = VARIANTS[name]
        path = pathlib.Path(folder) / name
        write_folder(path, spec["config"], make_tensors(spec["config"], seed), spec["dtype"])
    return path, spec["longest"]
