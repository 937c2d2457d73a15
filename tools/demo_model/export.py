#!/usr/bin/env python3
"""Writes a trained checkpoint as a Hugging Face Qwen3ForCausalLM folder. Needs torch.

usage: export.py CHECKPOINT DATA_DIR OUT_DIR
"""
import json
import os
import shutil
import struct
import sys

import torch

HEAD_DIM = 64


def save_safetensors(path, tensors, metadata):
    """u64 length of the header, the JSON header padded to 8 bytes, then the raw little-endian data."""
    header, offset, blobs = {"__metadata__": metadata}, 0, []
    for name, tensor in sorted(tensors.items()):
        tensor = tensor.contiguous()
        kind = {torch.bfloat16: "BF16", torch.float32: "F32"}[tensor.dtype]
        raw = (tensor.view(torch.int16) if kind == "BF16" else tensor).numpy().tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        blobs.append(raw)
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded + b"".join(blobs))


def hugging_face_tensors(weights, cfg):
    """The fused weights of network.Net under the names of Qwen3ForCausalLM."""
    queries, keys = cfg["heads"] * HEAD_DIM, cfg["kv"] * HEAD_DIM
    tensors = {"model.embed_tokens.weight": weights["embed"], "model.norm.weight": weights["norm"]}
    for l in range(cfg["layers"]):
        q, k, v = weights[f"{l}.qkv"].split([queries, keys, keys])
        gate, up = weights[f"{l}.gu"].split(cfg["ffn"])
        parts = {
            "input_layernorm": weights[f"{l}.n1"],
            "post_attention_layernorm": weights[f"{l}.n2"],
            "self_attn.q_proj": q,
            "self_attn.k_proj": k,
            "self_attn.v_proj": v,
            "self_attn.o_proj": weights[f"{l}.o"],
            "self_attn.q_norm": weights[f"{l}.qn"],
            "self_attn.k_norm": weights[f"{l}.kn"],
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": weights[f"{l}.dn"],
        }
        tensors.update({f"model.layers.{l}.{name}.weight": value for name, value in parts.items()})
    return tensors


def model_config(cfg, ids):
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": ids["<|im_end|>"],
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": cfg["hidden"],
        "initializer_range": 0.02,
        "intermediate_size": cfg["ffn"],
        "max_position_embeddings": 2048,
        "max_window_layers": cfg["layers"],
        "model_type": "qwen3",
        "num_attention_heads": cfg["heads"],
        "num_hidden_layers": cfg["layers"],
        "num_key_value_heads": cfg["kv"],
        "pad_token_id": ids["<|endoftext|>"],
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": cfg["vocab"],
    }


def main(checkpoint_path, data, out):
    os.makedirs(out, exist_ok=True)
    checkpoint = torch.load(checkpoint_path)
    named = hugging_face_tensors(checkpoint["params"], checkpoint["cfg"])
    tensors = {name: value.to(torch.bfloat16) for name, value in named.items()}
    save_safetensors(out + "/model.safetensors", tensors, {"format": "pt"})
    with open(data + "/tokenizer.json", encoding="utf-8") as file:
        ids = {token["content"]: token["id"] for token in json.load(file)["added_tokens"]}
    generation_config = {
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "pad_token_id": ids["<|endoftext|>"],
        "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
    }
    for name, value in (("config", model_config(checkpoint["cfg"], ids)), ("generation_config", generation_config)):
        with open(f"{out}/{name}.json", "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(data + "/" + name, out)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    print("parameters", parameters, "steps", checkpoint["step"], "tokens", checkpoint["tokens"])


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
