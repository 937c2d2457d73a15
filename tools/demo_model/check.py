#!/usr/bin/python3
"""Checks an exported model with the independent tokenizer and forward pass of this folder.

usage: check.py verify MODEL_DIR            compares the model with its golden.json; exits 1 when they differ
       check.py golden MODEL_DIR            writes golden.json
       check.py samples MODEL_DIR [ADAPTER_DIR]   greedy answers to the sample prompts
       check.py accept MODEL_DIR DRAFT_DIR  how often a draft model's first choice is what the model says next
       check.py perplexity MODEL_DIR DATA_DIR     over the validation tokens that prepare.py wrote
"""
import json
import math
import struct
import sys

import numpy as np

from numpy_model import Model
from samples import GOLDEN, SAMPLES
from tokenizer import Tokenizer, load_template


def golden_entries(folder):
    tokenizer, model, render = Tokenizer.load(folder), Model(folder), load_template(folder)
    for name, messages, tools in GOLDEN:
        prompt = render(messages=messages, tools=tools, add_generation_prompt=True)
        ids = tokenizer.encode(prompt)
        greedy, first = model.greedy(ids, 48)
        top = np.argsort(-first, kind="stable")[:10]
        yield {
            "name": name,
            "messages": messages,
            "tools": tools,
            "prompt": prompt,
            "prompt_ids": ids,
            "greedy_ids": greedy,
            "greedy_text": tokenizer.decode(greedy),
            "top10": [{"id": int(id), "logit": float(first[id])} for id in top],
        }


def write_golden(folder):
    with open(folder + "/golden.json", "w", encoding="utf-8") as file:
        json.dump(list(golden_entries(folder)), file, ensure_ascii=False, indent=1)


def verify(folder):
    with open(folder + "/golden.json", encoding="utf-8") as file:
        stored = json.load(file)
    differences = 0
    worst = 0.0
    entries = list(golden_entries(folder))
    if len(entries) != len(stored):
        sys.exit(f"golden.json has {len(stored)} entries instead of {len(entries)}")
    for expected, actual in zip(stored, entries):
        for key in ("name", "messages", "tools", "prompt", "prompt_ids", "greedy_ids", "greedy_text"):
            if expected[key] != actual[key]:
                differences += 1
                print(f"{expected['name']}: {key} differs")
        logits = {entry["id"]: entry["logit"] for entry in actual["top10"]}
        for entry in expected["top10"]:
            worst = max(worst, abs(logits.get(entry["id"], math.inf) - entry["logit"]))
    # Sums in another order: some ulps of fp32 in each of a few hundred terms.
    if worst > 1e-3:
        differences += 1
    print(f"{len(stored)} prompts, {differences} differences, largest logit error {worst:.2g}")
    return 1 if differences else 0


def samples(folder, adapter=None):
    tokenizer, model, render = Tokenizer.load(folder), Model(folder, adapter), load_template(folder)
    stop = (tokenizer.added["<|im_end|>"], tokenizer.added["<|endoftext|>"])
    for name, messages, tools in SAMPLES:
        prompt = render(messages=messages, tools=tools, add_generation_prompt=True)
        answer, _ = model.greedy(tokenizer.encode(prompt), 150, stop)
        print(f"## {name}\nuser: {messages[-1]['content']}\nmodel: {tokenizer.decode(answer)}\n")


def accept(folder, draft_folder):
    tokenizer, model, draft = Tokenizer.load(folder), Model(folder), Model(draft_folder)
    render = load_template(folder)
    stop = (tokenizer.added["<|im_end|>"], tokenizer.added["<|endoftext|>"])
    same = total = 0
    for name, messages, tools in SAMPLES:
        ids = tokenizer.encode(render(messages=messages, tools=tools, add_generation_prompt=True))
        answer, _ = model.greedy(ids, 100, stop)
        draft.reset()
        guess = draft.forward(ids + answer[:-1])[len(ids) - 1 :].argmax(-1)
        agree = int((guess == np.array(answer)).sum())
        same, total = same + agree, total + len(answer)
        print(f"{name:32} {agree:3} of {len(answer):3}")
    print(f"the draft agrees on {same} of {total} tokens ({100 * same / total:.1f} %)")


def perplexity(folder, data):
    """Records of val.bin: u32 length, u16 ids[length], u8 kind[length]; see prepare.py."""
    model = Model(folder)
    with open(data + "/val.bin", "rb") as file:
        raw = file.read()
    at, loss, count = 0, np.zeros(3), np.zeros(3)
    while at < len(raw) and count.sum() < 60000:
        (length,) = struct.unpack_from("<I", raw, at)
        ids = np.frombuffer(raw, "<u2", length, at + 4)
        kind = np.frombuffer(raw, "u1", length, at + 4 + 2 * length)
        at += 4 + 3 * length
        model.reset()
        logits = model.forward(ids[:-1])
        top = logits.max(-1)
        nll = top + np.log(np.exp(logits - top[:, None]).sum(-1)) - logits[np.arange(length - 1), ids[1:]]
        for k in range(3):
            loss[k] += nll[kind[1:] == k].sum(dtype=np.float64)
            count[k] += (kind[1:] == k).sum()
    context, user, assistant = np.exp(loss / count)
    everything = math.exp(loss.sum() / count.sum())
    print(f"perplexity over the first {int(count.sum())} validation tokens: context {context:.3f} user {user:.3f} "
          f"assistant {assistant:.3f} all {everything:.3f}")


def main():
    commands = {"verify": verify, "golden": write_golden, "samples": samples, "accept": accept, "perplexity": perplexity}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    return commands[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
