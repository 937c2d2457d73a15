"""A second implementation of the decoders that quire runs, for comparison: numpy in double precision, written from the
papers and from Hugging Face's definitions, sharing nothing with the C++ sources. Slow and simple on purpose.

Reads a Hugging Face folder (config.json, model.safetensors) or the F32/F16/BF16/Q8_0/Q4_0 tensors of a GGUF file.
"""
import json
import math
import pathlib
import struct

import numpy as np


def bf16_to_f64(raw):
    return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)


SAFETENSORS_DECODERS = {
    "F32": lambda raw: np.frombuffer(raw, "<f4").astype(np.float64),
    "F16": lambda raw: np.frombuffer(raw, "<f2").astype(np.float64),
    "BF16": bf16_to_f64,
}


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    tensors = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = SAFETENSORS_DECODERS[entry["dtype"]](raw[8 + size + begin:8 + size + end])
        tensors[name] = data.reshape(entry["shape"])
    return tensors


# ---- GGUF ----------------------------------------------------------------------------------------------------------

def q8_0_to_f64(raw):
    blocks = np.frombuffer(raw, np.dtype([("d", "<f2"), ("q", "i1", 32)]))
    return (blocks["d"].astype(np.float64)[:, None] * blocks["q"]).reshape(-1)


def q4_0_to_f64(raw):
    blocks = np.frombuffer(raw, np.dtype([("d", "<f2"), ("q", "u1", 16)]))
    codes = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1).astype(np.float64) - 8
    return (blocks["d"].astype(np.float64)[:, None] * codes).reshape(-1)


# ggml type: (decoder, elements of a block, bytes of a block)
GGUF_DECODERS = {
    0: (SAFETENSORS_DECODERS["F32"], 1, 4),
    1: (SAFETENSORS_DECODERS["F16"], 1, 2),
    30: (bf16_to_f64, 1, 2),
    8: (q8_0_to_f64, 32, 34),
    2: (q4_0_to_f64, 32, 18),
}
INTEGER_KINDS = (2, 8)
GGUF_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def read_gguf(path):
    """→ (metadata, tensors, ggml types of the tensors)"""
    raw = pathlib.Path(path).read_bytes()
    offset = 0

    def take(form):
        nonlocal offset
        (value,) = struct.unpack_from("<" + form, raw, offset)
        offset += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal offset
        size = take("Q")
        offset += size
        return raw[offset - size:offset].decode("utf-8", "replace")

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            inner, count = take("I"), take("Q")
            return [value(inner) for _ in range(count)]
        return take(GGUF_SCALARS[kind])

    assert raw[:4] == b"GGUF"
    offset = 4
    assert take("I") in (2, 3)
    num_tensors, num_keys = take("Q"), take("Q")
    metadata = {}
    for _ in range(num_keys):
        key = text()
        metadata[key] = value(take("I"))
    infos = []
    for _ in range(num_tensors):
        name = text()
        shape = [take("Q") for _ in range(take("I"))][::-1]
        infos.append((name, shape, take("I"), take("Q")))
    alignment = metadata.get("general.alignment", 32)
    start = (offset + alignment - 1) // alignment * alignment
    tensors, kinds = {}, {}
    for name, shape, kind, at in infos:
        kinds[name] = kind
        decode, elements, size = GGUF_DECODERS[kind]
        count = math.prod(shape) // elements * size
        tensors[name] = decode(raw[start + at:start + at + count]).reshape(shape)
    return metadata, tensors, kinds


GGUF_LAYER_NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
GGUF_MODEL_TYPES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}


def load_gguf(path):
    """→ (config in Hugging Face's words, tensors under Hugging Face's names)"""
    metadata, tensors, kinds = read_gguf(path)
    arch = metadata["general.architecture"]
    key = lambda name, default=None: metadata.get(f"{arch}.{name}", default)
    heads, hidden = key("attention.head_count"), key("embedding_length")
    config = {
        "model_type": GGUF_MODEL_TYPES[arch], "hidden_size": hidden, "num_attention_heads": heads,
        "num_hidden_layers": key("block_count"), "intermediate_size": key("feed_forward_length"),
        "num_key_value_heads": key("attention.head_count_kv", heads),
        "head_dim": key("attention.key_length", hidden // heads),
        "max_position_embeddings": key("context_length"), "rms_norm_eps": key("attention.layer_norm_rms_epsilon"),
        "rope_theta": key("rope.freq_base", 10000.0), "tie_word_embeddings": "output.weight" not in tensors,
        "interleaved_rope": arch == "llama",
    }
    if "rope_freqs.weight" in tensors:
        config["frequency_divisors"] = tensors.pop("rope_freqs.weight")
    renamed, integer = {}, set()
    for name, tensor in tensors.items():
        part = name.split(".")
        if part[0] == "blk":
            new = f"model.layers.{part[1]}.{GGUF_LAYER_NAMES[part[2]]}.{part[3]}"
        else:
            new = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}[part[0]]
            new = f"{new}.{part[1]}"
        renamed[new] = tensor
        if kinds[name] in INTEGER_KINDS:
            integer.add(new)
    config["integer_tensors"] = integer
    return config, renamed


# ---- The decoder ---------------------------------------------------------------------------------------------------

def rope_frequencies(config, rotary_dim, longest):
    """→ (inverse frequencies [rotary_dim / 2], factor of cos and sin)"""
    theta = config.get("rope_theta", 10000.0)
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    trained = config["max_position_embeddings"]
    exponents = np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim
    if kind == "dynamic" and longest > trained:
        stretch = scaling["factor"] * longest / trained - (scaling["factor"] - 1)
        theta = theta * stretch ** (rotary_dim / (rotary_dim - 2))
    frequencies = 1.0 / theta ** exponents
    amplitude = 1.0
    if kind == "linear":
        frequencies = frequencies / scaling["factor"]
    elif kind == "llama3":
        original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        wavelengths = 2 * np.pi / frequencies
        smooth = (original / wavelengths - low) / (high - low)
        mixed = (1 - smooth) * frequencies / factor + smooth * frequencies
        frequencies = np.where(wavelengths < original / high, frequencies,
                               np.where(wavelengths > original / low, frequencies / factor, mixed))
    elif kind == "yarn":
        factor = scaling["factor"]
        original = scaling.get("original_max_position_embeddings", trained)
        find = lambda turns: rotary_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))
        low = max(math.floor(find(scaling.get("beta_fast", 32))), 0)
        high = min(math.ceil(find(scaling.get("beta_slow", 1))), rotary_dim - 1)
        ramp = np.clip((np.arange(rotary_dim // 2) - low) / (high - low if high != low else 0.001), 0, 1)
        frequencies = frequencies / factor * ramp + frequencies * (1 - ramp)
        scale = lambda m: 0.1 * m * math.log(factor) + 1 if factor > 1 else 1.0
        if scaling.get("attention_factor") is not None:
            amplitude = scaling["attention_factor"]
        elif scaling.get("mscale") and scaling.get("mscale_all_dim"):
            amplitude = scale(scaling["mscale"]) / scale(scaling["mscale_all_dim"])
        else:
            amplitude = scale(1)
    elif kind not in ("default", "dynamic"):
        raise ValueError(f"unknown rope type {kind}")
    if "frequency_divisors" in config:
        frequencies = frequencies / config["frequency_divisors"]
    return frequencies, amplitude


def round_to_int8(x, order=None, block=256):
    """What quire defines for integer weights: a row of activations is rounded to 8-bit codes, symmetric, one scale for
    each block of 256 elements, counted in the order in which the matrix keeps its columns."""
    if order is not None:
        out = np.empty_like(x)
        out[..., order] = round_to_int8(x[..., order])
        return out
    out = np.empty_like(x)
    for begin in range(0, x.shape[-1], block):
        part = x[..., begin:begin + block]
        scale = np.abs(part).max(axis=-1, keepdims=True) / 127
        out[..., begin:begin + block] = np.rint(part / np.where(scale > 0, scale, 1)) * scale
    return out


class ReferenceModel:
    def __init__(self, config, tensors, longest=0):
        self.config, self.tensors = config, tensors
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.heads
        self.eps = config.get("rms_norm_eps", 1e-6)
        self.frequencies, self.amplitude = rope_frequencies(config, self.head_dim, longest)

    @classmethod
    def load(cls, path, longest=0):
        path = pathlib.Path(path)
        if path.suffix == ".gguf":
            return cls(*load_gguf(path), longest)
        return cls(json.loads((path / "config.json").read_text()), read_safetensors(path / "model.safetensors"), longest)

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.tensors[name + ".weight"]

    def linear(self, x, name):
        if name + ".weight" in self.config.get("integer_tensors", ()):
            x = round_to_int8(x, self.config.get("input_orders", {}).get(name + ".weight"))
        y = x @ self.tensors[name + ".weight"].T
        return y + self.tensors[name + ".bias"] if name + ".bias" in self.tensors else y

    def rotate(self, x):
        """x [tokens, heads, head_dim]"""
        angles = np.arange(len(x))[:, None] * self.frequencies[None, :]
        cos, sin = np.cos(angles)[:, None] * self.amplitude, np.sin(angles)[:, None] * self.amplitude
        out = np.empty_like(x)
        half = self.head_dim // 2
        if self.config.get("interleaved_rope"):
            first, second = slice(0, None, 2), slice(1, None, 2)
        else:
            first, second = slice(0, half), slice(half, None)
        a, b = x[..., first], x[..., second]
        out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
        return out

    def window(self, layer):
        config = self.config
        window, kind = config.get("sliding_window"), config["model_type"]
        if not window or kind == "llama":
            return None
        if "layer_types" in config:
            return window if config["layer_types"][layer] == "sliding_attention" else None
        if kind == "mistral":
            return window
        return window if config.get("use_sliding_window") and layer >= config["max_window_layers"] else None

    def attention(self, x, layer):
        name, n = f"model.layers.{layer}.self_attn", len(x)
        q = self.linear(x, name + ".q_proj").reshape(n, self.heads, self.head_dim)
        k = self.linear(x, name + ".k_proj").reshape(n, self.kv_heads, self.head_dim)
        v = self.linear(x, name + ".v_proj").reshape(n, self.kv_heads, self.head_dim)
        if name + ".q_norm.weight" in self.tensors:
            q, k = self.norm(q, name + ".q_norm"), self.norm(k, name + ".k_norm")
        q, k = self.rotate(q), self.rotate(k)
        i, j = np.arange(n)[:, None], np.arange(n)[None, :]
        visible = j <= i
        window = self.window(layer)
        if window:
            visible &= j > i - window
        out = np.empty_like(q)
        for head in range(self.heads):
            kv = head // (self.heads // self.kv_heads)
            scores = np.where(visible, q[:, head] @ k[:, kv].T / math.sqrt(self.head_dim), -np.inf)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[:, kv]
        return self.linear(out.reshape(n, -1), name + ".o_proj")

    def mlp(self, x, layer):
        name = f"model.layers.{layer}.mlp"
        gate, up = self.linear(x, name + ".gate_proj"), self.linear(x, name + ".up_proj")
        return self.linear(gate / (1 + np.exp(-gate)) * up, name + ".down_proj")

    def logits(self, tokens):
        """[len(tokens), vocab_size]"""
        x = self.tensors["model.embed_tokens.weight"][np.asarray(tokens)]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            x = x + self.attention(self.norm(x, name + ".input_layernorm"), layer)
            x = x + self.mlp(self.norm(x, name + ".post_attention_layernorm"), layer)
        tied = self.config.get("tie_word_embeddings", False)
        return self.linear(self.norm(x, "model.norm"), "model.embed_tokens" if tied else "lm_head")
