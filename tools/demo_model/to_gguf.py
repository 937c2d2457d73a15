#!/usr/bin/python3
"""Converts an exported model folder to GGUF, for comparison with llama.cpp.

usage: to_gguf.py MODEL_DIR OUT.gguf [bf16|f32]

Matrices keep their bf16 bits, or become f32; norms are f32 always, as llama.cpp wants them.
"""
import json
import struct
import sys

import numpy as np

# GGUF's numbers for the types of metadata values and of tensors.
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TENSOR_F32, TENSOR_BF16 = 0, 30
ALIGNMENT = 32
# Kinds of tokens.
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4

CONFIG_KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "head_dim",
    "vocab_size": "vocab_size",
}
GLOBAL_TENSORS = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
LAYER_TENSORS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def metadata(config, tokenizer, tokenizer_config):
    """The encoded key-value pairs."""
    pairs = []

    def put(key, kind, value):
        pairs.append(text(key) + struct.pack("<I", kind) + value)

    put("general.architecture", STRING, text("qwen3"))
    put("general.name", STRING, text("quire-demo"))
    for key, name in CONFIG_KEYS.items():
        put("qwen3." + key, UINT32, struct.pack("<I", config[name]))
    put("qwen3.attention.layer_norm_rms_epsilon", FLOAT32, struct.pack("<f", config["rms_norm_eps"]))
    put("qwen3.rope.freq_base", FLOAT32, struct.pack("<f", config["rope_theta"]))

    tokens = {id: (piece, NORMAL) for piece, id in tokenizer["model"]["vocab"].items()}
    for token in tokenizer["added_tokens"]:
        tokens[token["id"]] = (token["content"], CONTROL if token["special"] else USER_DEFINED)
    in_order = [tokens[id] for id in range(len(tokens))]
    put("tokenizer.ggml.model", STRING, text("gpt2"))
    put("tokenizer.ggml.pre", STRING, text("qwen2"))
    put("tokenizer.ggml.tokens", ARRAY, array(STRING, [text(piece) for piece, _ in in_order]))
    put("tokenizer.ggml.token_type", ARRAY, array(INT32, [struct.pack("<i", kind) for _, kind in in_order]))
    put("tokenizer.ggml.merges", ARRAY, array(STRING, [text(merge) for merge in tokenizer["model"]["merges"]]))
    put("tokenizer.ggml.eos_token_id", UINT32, struct.pack("<I", config["eos_token_id"]))
    put("tokenizer.ggml.padding_token_id", UINT32, struct.pack("<I", config["pad_token_id"]))
    put("tokenizer.ggml.add_bos_token", BOOL, b"\0")
    put("tokenizer.chat_template", STRING, text(tokenizer_config["chat_template"]))
    return pairs


def gguf_name(name):
    if name in GLOBAL_TENSORS:
        return GLOBAL_TENSORS[name]
    _, _, layer, *rest, _ = name.split(".")  # model.layers.3.self_attn.q_proj.weight
    return f"blk.{layer}.{LAYER_TENSORS['.'.join(rest)]}.weight"


def convert(folder, out, kind):
    config, tokenizer, tokenizer_config = (
        json.load(open(f"{folder}/{name}.json", encoding="utf-8")) for name in ("config", "tokenizer", "tokenizer_config")
    )
    with open(folder + "/model.safetensors", "rb") as file:
        raw = file.read()
    header_size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + header_size])
    header.pop("__metadata__", None)

    infos, data = b"", b""
    for name, tensor in header.items():
        begin, end = (8 + header_size + offset for offset in tensor["data_offsets"])
        values, code = raw[begin:end], TENSOR_BF16
        if len(tensor["shape"]) == 1 or kind == "f32":
            values, code = (np.frombuffer(values, "<u2").astype("<u4") << 16).tobytes(), TENSOR_F32
        data += b"\0" * (-len(data) % ALIGNMENT)
        dims = tensor["shape"][::-1]  # the fastest first
        infos += text(gguf_name(name)) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, code, len(data))
        data += values
    pairs = metadata(config, tokenizer, tokenizer_config)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(header), len(pairs)) + b"".join(pairs) + infos
    with open(out, "wb") as file:
        file.write(head + b"\0" * (-len(head) % ALIGNMENT) + data)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    convert(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "bf16")
