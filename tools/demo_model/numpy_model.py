"""The forward pass of a Qwen3 model in plain numpy, fp32: a second implementation to compare quire with."""
import json
import math

import numpy as np


def read_safetensors(path):
    """name → fp32 array; F32 and BF16 only."""
    with open(path, "rb") as file:
        raw = file.read()
    header_size = int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, tensor in json.loads(raw[8 : 8 + header_size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + header_size + offset for offset in tensor["data_offsets"])
        if tensor["dtype"] == "F32":
            values = np.frombuffer(raw[begin:end], "<f4")
        else:
            values = (np.frombuffer(raw[begin:end], "<u2").astype("<u4") << 16).view("<f4")
        tensors[name] = values.reshape(tensor["shape"])
    return tensors


class Model:
    """One sequence at a time, with a KV cache that reset() empties."""

    def __init__(self, folder, adapter=None):
        with open(folder + "/config.json", encoding="utf-8") as file:
            self.config = json.load(file)
        self.weights = read_safetensors(folder + "/model.safetensors")
        if adapter:
            self.merge_adapter(adapter)
        self.reset()

    def merge_adapter(self, folder):
        """Adds the LoRA adapter's products B·A to the weights."""
        with open(folder + "/adapter_config.json", encoding="utf-8") as file:
            config = json.load(file)
        tensors = read_safetensors(folder + "/adapter_model.safetensors")
        scale = config["lora_alpha"] / config["r"]
        for name, a in tensors.items():
            if ".lora_A." in name:
                target = name.replace("base_model.model.", "").replace(".lora_A", "")
                b = tensors[name.replace("lora_A", "lora_B")]
                self.weights[target] = self.weights[target] + scale * b @ a

    def reset(self):
        self.cache = [None] * self.config["num_hidden_layers"]  # per layer: K and V, [kv heads, tokens, head_dim]

    def norm(self, x, name):
        variance = (x * x).mean(-1, keepdims=True)
        return x / np.sqrt(variance + np.float32(self.config["rms_norm_eps"])) * self.weights[name + ".weight"]

    def project(self, x, name):
        return x @ self.weights[name + ".weight"].T

    def forward(self, ids):
        """Logits [len(ids), vocab] of tokens that follow what was fed before."""
        past = 0 if self.cache[0] is None else self.cache[0][0].shape[1]
        positions = np.arange(past, past + len(ids))
        x = self.weights["model.embed_tokens.weight"][ids]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            x = x + self.attention(self.norm(x, prefix + "input_layernorm"), layer, positions)
            h = self.norm(x, prefix + "post_attention_layernorm")
            gate = self.project(h, prefix + "mlp.gate_proj")
            activated = gate / (1 + np.exp(-gate)) * self.project(h, prefix + "mlp.up_proj")
            x = x + self.project(activated, prefix + "mlp.down_proj")
        return self.norm(x, "model.norm") @ self.weights["model.embed_tokens.weight"].T

    def attention(self, h, layer, positions):
        config, prefix = self.config, f"model.layers.{layer}.self_attn."
        num_heads, num_kv_heads, dim = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
        frequencies = config["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
        angle = (positions[:, None] * frequencies).astype(np.float32)
        cos, sin = np.cos(angle), np.sin(angle)

        def heads(name, count):
            return self.project(h, prefix + name).reshape(len(positions), count, dim).transpose(1, 0, 2)

        def rotate(x):
            low, high = x[..., : dim // 2], x[..., dim // 2 :]
            return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)

        q = rotate(self.norm(heads("q_proj", num_heads), prefix + "q_norm"))
        k, v = rotate(self.norm(heads("k_proj", num_kv_heads), prefix + "k_norm")), heads("v_proj", num_kv_heads)
        if self.cache[layer] is not None:
            k, v = (np.concatenate([old, new], 1) for old, new in zip(self.cache[layer], (k, v)))
        self.cache[layer] = (k, v)
        group = num_heads // num_kv_heads
        scores = q @ np.repeat(k, group, 0).transpose(0, 2, 1) / np.float32(math.sqrt(dim))
        scores = np.where(np.arange(k.shape[1])[None, :] > positions[:, None], np.float32(-np.inf), scores)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        mixed = (scores @ np.repeat(v, group, 0)).transpose(1, 0, 2).reshape(len(positions), num_heads * dim)
        return self.project(mixed, prefix + "o_proj")

    def greedy(self, ids, count, stop=()):
        """At most `count` tokens, up to one of `stop`; and the logits of the first of them."""
        self.reset()
        first = logits = self.forward(ids)[-1]
        out = []
        while len(out) < count:
            out.append(int(logits.argmax()))
            if out[-1] in stop:
                break
            logits = self.forward(out[-1:])[-1]
        return out, first
