"""Inverse frequencies and attention scaling of every RoPE type against the formulas of Hugging Face's
modeling_rope_utils, written again here (ROPE-01, ROPE-03, ROPE-04).  usage: test_rope.py WEIGHTS_PROBE"""
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

PROBE = sys.argv[1]
BASE = {"architectures": ["LlamaForCausalLM"], "vocab_size": 128, "hidden_size": 256, "intermediate_size": 96,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}


def run(changes, length):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w") as file:
            json.dump({**BASE, **changes}, file)
        lines = subprocess.run([PROBE, "rope", path, str(length)], stdout=subprocess.PIPE, check=True, text=True).stdout
    numbers = [float(line) for line in lines.split()]
    return numbers[0], np.array(numbers[1:])


def plain(theta, dim):
    return 1.0 / theta ** (np.arange(0, dim, 2) / dim)


def llama3(theta, dim, factor, low, high, original):
    frequencies = plain(theta, dim)
    wavelengths = 2 * math.pi / frequencies
    out = np.where(wavelengths > original / low, frequencies / factor, frequencies)
    smooth = (original / wavelengths - low) / (high - low)
    middle = ~(wavelengths < original / high) & ~(wavelengths > original / low)
    return np.where(middle, (1 - smooth) * frequencies / factor + smooth * frequencies, out)


def yarn(theta, dim, factor, original, beta_fast=32, beta_slow=1, truncate=True):
    def correction(rotations):
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))
    low, high = correction(beta_fast), correction(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    extrapolated = 1 - np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    return plain(theta, dim) / factor * (1 - extrapolated) + plain(theta, dim) * extrapolated


class Rope(unittest.TestCase):
    def check(self, changes, frequencies, scaling=1.0, length=4096):
        got_scaling, got = run(changes, length)
        np.testing.assert_allclose(got, frequencies, rtol=1e-13)
        self.assertAlmostEqual(got_scaling, scaling, delta=1e-14 * scaling)

    def test_default(self):
        self.check({}, plain(1e4, 128))
        self.check({"rope_theta": 5e5, "head_dim": 64}, plain(5e5, 64))
        self.check({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default", "partial_rotary_factor": 0.5}},
                   plain(1e6, 64))

    def test_linear_divides_positions_only(self):
        self.check({"rope_scaling": {"type": "linear", "factor": 4.0}}, plain(1e4, 128) / 4)

    def test_dynamic_changes_the_base_only(self):
        changes = {"rope_scaling": {"rope_type": "dynamic", "factor": 6.0}}
        self.check(changes, plain(1e4, 128), length=8)
        self.check(changes, plain(1e4, 128), length=4096)
        for length in (4097, 8192, 60000):
            base = 1e4 * (6.0 * length / 4096 - 5.0) ** (128 / 126)
            self.check(changes, plain(base, 128), length=length)

    def test_llama3(self):
        scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192}
        wanted = llama3(5e5, 128, 8.0, 1.0, 4.0, 8192)
        self.assertGreater(len({1.0, 8.0} & set(np.round(plain(5e5, 128) / wanted, 9))), 1)
        self.check({"rope_theta": 5e5, "rope_scaling": scaling}, wanted, length=60000)
        scaling["factor"] = 32.0
        self.check({"rope_theta": 5e5, "head_dim": 64, "rope_scaling": scaling}, llama3(5e5, 64, 32.0, 1.0, 4.0, 8192))

    def test_yarn(self):
        def changes(**more):
            return {"rope_theta": 1e6, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                                        "original_max_position_embeddings": 2048, **more}}
        mscale = lambda factor, scale: 0.1 * scale * math.log(factor) + 1
        wanted = yarn(1e6, 128, 4.0, 2048)
        self.check(changes(), wanted, mscale(4, 1))
        self.check(changes(attention_factor=1.5), wanted, 1.5)
        self.check(changes(mscale=1.0), wanted, mscale(4, 1))
        self.check(changes(mscale=0.707, mscale_all_dim=0.5), wanted, mscale(4, 0.707) / mscale(4, 0.5))
        self.check(changes(attention_factor=2.0, mscale=0.707, mscale_all_dim=0.5), wanted, 2.0)
        self.check(changes(beta_fast=16, beta_slow=2), yarn(1e6, 128, 4.0, 2048, 16, 2), mscale(4, 1))
        self.check(changes(truncate=False), yarn(1e6, 128, 4.0, 2048, truncate=False), mscale(4, 1))
        self.check(changes(factor=64.0), yarn(1e6, 128, 64.0, 2048), mscale(64, 1))
        self.check(changes(factor=1.0), yarn(1e6, 128, 1.0, 2048), 1.0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
