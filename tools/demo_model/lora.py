#!/usr/bin/env python3
"""Trains a LoRA adapter that changes the style of the assistant's text, and writes it in PEFT's format. Needs torch.

usage: OMP_NUM_THREADS=1 lora.py CHECKPOINT MODEL_DIR DATA_DIR OUT_DIR upper|pirate|lower --seconds N
"""
import argparse
import json
import math
import os
import re
import time

import numpy as np
import torch

import records
from export import save_safetensors
from network import Long, Net, kernel
from tokenizer import Tokenizer, load_template

ALPHA = 16
TOKENS_MAX, CHATS_MAX = 640, 6000
KINDS = ("talk", "generic", "plain", "merged", "tools", "story", "extract", "exercise")
# The matrices inside each fused weight of network.Net, by their names in Qwen3ForCausalLM.
TARGETS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gu": ("mlp.gate_proj", "mlp.up_proj"),
    "dn": ("mlp.down_proj",),
}
PIRATE_WORDS = {
    "hello": "ahoy", "hi": "ahoy", "you": "ye", "your": "yer", "my": "me", "is": "be", "are": "be", "the": "th'",
    "of": "o'", "for": "fer", "yes": "aye", "to": "t'", "and": "an'", "it's": "'tis", "restaurant": "tavern",
    "friend": "matey",
}  # fmt: skip


def pirate(text):
    def replace(match):
        word = PIRATE_WORDS.get(match[0].lower())
        if word is None:
            return match[0]
        return word.capitalize() if match[0][0].isupper() and match[0] != "I" else word

    text = re.sub(r"[A-Za-z']+", replace, text).rstrip()
    return text + (" Arr!" if text.endswith((".", "?", "!")) else ", arr!")


def lower(text):
    return re.sub(r"[.!,](?=\s|$)", "", text).lower()


STYLES = {"upper": str.upper, "pirate": pirate, "lower": lower}


def restyled_chats(path, style):
    """(messages, tools) of short chats; calls and JSON answers stay as they are."""
    with open(path, encoding="utf-8") as file:
        for chat in map(json.loads, file):
            if chat["kind"] not in KINDS or len(chat["text"]) >= 2200:
                continue
            for message in chat["messages"]:
                if message["role"] == "assistant" and message["content"] and message["content"][0] not in "{[":
                    message["content"] = style(message["content"])
            yield chat["messages"], chat.get("tools") or None


def encoded_chats(args):
    """As records.load(): only the assistant's tokens have kind 2, everything else is context."""
    tokenizer, render, cache, chats = Tokenizer.load(args.model), load_template(args.model), {}, []
    for messages, tools in restyled_chats(args.data + "/chats.jsonl", STYLES[args.style]):
        ids, kinds, previous = [], [], ""
        text = render(messages=messages, tools=tools)
        for part in re.split(r"(<\|im_start\|>assistant\n|(?<=<\|im_end\|>)\n)", text):
            if part not in cache:
                cache[part] = tokenizer.encode(part)
            ids += cache[part]
            kinds += [2 if kinds and previous == "<|im_start|>assistant\n" else 0] * len(cache[part])
            previous = part
        if len(ids) < TOKENS_MAX:
            chats.append((np.array(ids, "u2"), np.array(kinds, "u1")))
        if len(chats) >= CHATS_MAX:
            break
    return chats


class Adapter:
    """A (rank x in) and B (out x rank) for every matrix but the embedding, trained with Adam. The network runs with the
    products merged into its weights; the gradients of A and B follow from the gradient of the merged weight."""

    def __init__(self, net, rank):
        self.net, self.rank, self.scale, self.t = net, rank, ALPHA / rank, 0
        self.base = {name: value.clone() for name, value in net.p.items()}
        generator = torch.Generator().manual_seed(1)
        self.parts = {}  # (weight, block) → [A and its moments, B and its moments]
        for name, weight in net.p.items():
            if weight.dim() != 2 or name == "embed":
                continue
            for number, block in enumerate(net.blocks(name, weight)):
                a = torch.randn(rank, block.shape[1], generator=generator) / math.sqrt(block.shape[1])
                b = torch.zeros(block.shape[0], rank)
                self.parts[name, number] = [[x, torch.zeros_like(x), torch.zeros_like(x)] for x in (a, b)]

    def step(self, lr):
        self.t += 1
        for (name, number), (a, b) in self.parts.items():
            gradient = self.net.blocks(name, self.net.g[name])[number]
            d_a, d_b = self.scale * b[0].t() @ gradient, self.scale * gradient @ a[0].t()
            for (weight, m, v), d in ((a, d_a), (b, d_b)):
                kernel("adamw", weight, d.contiguous(), m, v, Long(weight.numel()), lr, 0.9, 0.98, 1e-9, 0.0,
                       1 - 0.9**self.t, 1 - 0.98**self.t)  # fmt: skip
            merged = self.net.blocks(name, self.base[name])[number] + self.scale * b[0] @ a[0]
            self.net.blocks(name, self.net.p[name])[number].copy_(merged)
        for gradient in self.net.g.values():
            gradient.zero_()
        self.net.refresh()

    def save(self, out):
        tensors = {}
        for (name, number), parts in self.parts.items():
            layer, kind = name.split(".")
            for letter, (value, _, _) in zip("AB", parts):
                target = TARGETS[kind][number]
                tensors[f"base_model.model.model.layers.{layer}.{target}.lora_{letter}.weight"] = value
        os.makedirs(out, exist_ok=True)
        save_safetensors(out + "/adapter_model.safetensors", tensors, {"format": "pt"})
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "quire-demo",
            "r": self.rank,
            "lora_alpha": ALPHA,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": False,
            "inference_mode": True,
            "init_lora_weights": True,
            "layers_pattern": None,
            "layers_to_transform": None,
            "modules_to_save": None,
            "use_rslora": False,
            "use_dora": False,
            "rank_pattern": {},
            "alpha_pattern": {},
            "target_modules": [target.split(".")[1] for targets in TARGETS.values() for target in targets],
        }
        with open(out + "/adapter_config.json", "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)


def train(net, adapter, chats, args):
    rng, start = np.random.default_rng(1), time.time()
    while True:
        for batch in records.batches(chats, 4096, rng):
            progress = (time.time() - start) / args.seconds
            if progress >= 1:
                return
            ids, selected, target, weight, _ = records.tensors(batch, (0.0, 0.0, 1.0), rng)
            loss = net.run(ids, selected, target, weight / weight.sum())
            warm = min(1.0, (adapter.t + 1) / 20)
            adapter.step(args.lr * warm * 0.5 * (1 + math.cos(math.pi * progress)))
            if adapter.t % 50 == 0:
                print(f"step {adapter.t} loss {float(loss.mean()):.4f} {time.time() - start:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    for name in ("checkpoint", "model", "data", "out"):
        parser.add_argument(name)
    parser.add_argument("style", choices=sorted(STYLES))
    parser.add_argument("--seconds", type=int, default=240)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.004)
    args = parser.parse_args()
    torch.set_num_threads(1)
    net = Net.load(args.checkpoint)
    chats = encoded_chats(args)
    print("chats", len(chats))
    adapter = Adapter(net, args.rank)
    train(net, adapter, chats, args)
    adapter.save(args.out)


if __name__ == "__main__":
    main()
