#!/usr/bin/env python3
"""Compares quire with the numpy model, logit by logit, on tiny random models of every architecture and variant, and on
the demo model.   usage: check_models.py PROGRAM WORK_FOLDER DEMO_FOLDER [NAME_PART]

Two kinds of run, two bounds on |quire − numpy| relative to the largest |logit| of the model:
  reference tier, F32 keys   5e-6: both compute the same exact weights, quire rounding activations to FP32 (2⁻²⁴ each).
                             For integer weights both round activations to 8-bit codes; where a value lies within FP32
                             rounding of the middle between two codes they may choose differently, which moves all that
                             follows: of several short prompts at least half must be within the bound, all within LOOSE
  best tier, BF16 keys       the tier may round activations to BF16 (2⁻⁹) or to 8-bit codes (2⁻⁸ of a block's largest),
                             and keys and values to BF16: 5e-2, with the mean a sixth of it
Chunked runs must repeat the bits of the run in one piece (SWA-01, SWA-02 with windows 4, 9 and 16 over 90 tokens).
"""
import json
import pathlib
import subprocess
import sys

import numpy as np

import tiny_models
from reference_model import ReferenceModel

TIGHT, LOOSE, LOOSE_MEAN = 5e-6, 5e-2, 8e-3
NUM_TOKENS = 90


def run(program, path, isa, kv, chunk, longest, threads, ids):
    command = [program, path, isa, kv, chunk, longest, threads, "logits", *ids]
    done = subprocess.run([str(part) for part in command], capture_output=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{path}: {done.stderr.decode()}")
    return np.frombuffer(done.stdout, "<f4").reshape(len(ids), -1)


def exact_faults(program, model, path, longest, ids):
    """→ (typical error on the reference tier, faults)"""
    integer = bool(model.config.get("integer_tensors"))
    prompts = [ids[i:i + 9] for i in range(0, len(ids), 9)] if integer else [ids]
    errors = []
    for prompt in prompts:
        expected = model.logits(prompt)
        got = run(program, path, "reference", "f32", 0, longest, 1, prompt)
        errors.append(np.abs(got - expected).max() / np.abs(expected).max())
    typical, worst = np.median(errors), max(errors)
    if typical <= TIGHT and worst <= (LOOSE if integer else TIGHT):
        return typical, []
    return typical, [f"reference tier is off by {typical:.1e} (worst {worst:.1e})"]


def check(program, name, path, longest, ids, model=None):
    model = model or ReferenceModel.load(path, longest)
    error, faults = exact_faults(program, model, path, longest, ids)
    expected = model.logits(ids)
    best = run(program, path, "auto", "bf16", 0, longest, 2, ids)
    difference = np.abs(best - expected) / np.abs(expected).max()
    if not (difference.max() <= LOOSE and difference.mean() <= LOOSE_MEAN):
        faults.append(f"best tier is off by {difference.max():.1e} (mean {difference.mean():.1e})")
    for chunk in (1, 7):
        if not np.array_equal(run(program, path, "auto", "bf16", chunk, longest, 2, ids), best):
            faults.append(f"chunks of {chunk} change the bits")
    print(f"{name:32} reference {error:.1e}  best {difference.max():.1e} (mean {difference.mean():.1e})  "
          f"{'; '.join(faults) or 'ok'}", flush=True)
    return not faults


def main():
    program, work, demo, part = (sys.argv[1:] + [""])[:4]
    ok = True
    names = [n for n in [*tiny_models.VARIANTS, *tiny_models.GGUF_VARIANTS] if part in n]
    for seed, name in enumerate(names):
        ids = np.random.default_rng(1000 + seed).integers(0, tiny_models.VOCAB, NUM_TOKENS)
        path, longest = tiny_models.make(name, work, seed)
        ok &= check(program, name, path, longest, ids)
    for seed, name in enumerate(n for n in tiny_models.QUANTIZED_VARIANTS if part in n):
        ids = np.random.default_rng(2000 + seed).integers(0, tiny_models.VOCAB, NUM_TOKENS)
        path, config, tensors = tiny_models.make_quantized(name, work, seed)
        ok &= check(program, name, path, 0, ids, ReferenceModel(config, tensors))
    for golden in json.loads((pathlib.Path(demo) / "golden.json").read_text())[:1] if part in "demo" else []:
        ok &= check(program, "demo: " + golden["name"], demo, 0, np.array(golden["prompt_ids"] + golden["greedy_ids"]))
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
