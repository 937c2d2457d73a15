"""The C++ codecs against numpy (formats.py), and against ggml's own where its library is installed: the same bytes out
of the quantizers, the same floats out of the dequantizers.  usage: test_formats.py WEIGHTS_PROBE"""
import os
import subprocess
import sys
import unittest

import numpy as np

import formats

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../peers"))
import ggml  # noqa: E402

PROBE = sys.argv[1]
COLUMNS = 512
SEED = 20240613


def probe(command, name, data):
    return subprocess.run([PROBE, command, name, str(COLUMNS)], input=data, stdout=subprocess.PIPE, check=True).stdout


def rows():
    """Rows of every sort that weights come in, and of those that they should not."""
    rng = np.random.default_rng(SEED)
    n = lambda count: rng.standard_normal((count, COLUMNS))
    kinds = [n(40), n(8) * 1e-3, n(8) * 50, rng.uniform(-1, 1, (8, COLUMNS)), np.abs(n(8)), -np.abs(n(8)),
             rng.integers(-8, 8, (8, COLUMNS)) * 0.25, rng.standard_t(2, (16, COLUMNS)), n(4) + 3,
             n(8) * (rng.random((8, COLUMNS)) < 0.05), n(4) * np.repeat(10.0 ** rng.integers(-6, 4, (4, COLUMNS // 16)), 16, 1),
             np.zeros((1, COLUMNS)), np.full((1, COLUMNS), 0.7), np.full((1, COLUMNS), -0.7), n(2) * 1e-18, n(2) * 1e-9]
    return np.vstack(kinds).astype(np.float32)


class Formats(unittest.TestCase):
    def check_quantizer(self, name, reference_bytes, values):
        got = probe("quantize", name, values.tobytes())
        size = formats.BLOCK[name][1]
        a = np.frombuffer(got, np.uint8).reshape(-1, size)
        b = np.frombuffer(reference_bytes, np.uint8).reshape(-1, size)
        self.assertEqual(a.shape, b.shape)
        different = np.flatnonzero((a != b).any(axis=1))
        self.assertEqual(len(different), 0, f"{name}: blocks {different[:10]} of {len(a)} differ, seed {SEED}")

    def check_dequantizer(self, name, reference, data):
        got = np.frombuffer(probe("dequantize", name, data), np.float32)
        np.testing.assert_array_equal(got, np.asarray(reference).reshape(-1), f"{name}, seed {SEED}")

    def random_blocks(self, name):
        """Blocks of arbitrary bytes, but for scales that are finite."""
        elements, size = formats.BLOCK[name]
        rng = np.random.default_rng(SEED + 1)
        data = rng.integers(0, 256, (64 * COLUMNS // elements, size), dtype=np.uint8)
        for at in formats.SCALES.get(name, []):
            data[:, at:at + 2] = rng.standard_normal(len(data)).astype("<f2").view(np.uint8).reshape(-1, 2)
        if name == "Q8_K":
            data[:, :4] = rng.standard_normal(len(data)).astype("<f4").view(np.uint8).reshape(-1, 4)
        if name == "MXFP4":
            data[:, 0] = np.arange(len(data)) % 253  # above, 6 · 2^126 is no float any more
        if name in ("F32", "F16", "BF16"):
            return formats.quantize(name, rng.standard_normal(64 * COLUMNS).astype(np.float32))
        return data.tobytes()

    def test_quantizers_against_numpy(self):
        values = rows()
        for name in formats.BLOCK.keys() - formats.READ_ONLY:
            with self.subTest(name):
                self.check_quantizer(name, formats.quantize(name, values), values)

    def test_dequantizers_against_numpy(self):
        for name in formats.BLOCK:
            with self.subTest(name):
                data = self.random_blocks(name)
                self.check_dequantizer(name, formats.dequantize(name, data), data)

    @unittest.skipUnless(ggml.load(), ggml.MISSING)
    def test_against_ggml(self):
        base, values = ggml.load(), rows()
        for name in formats.BLOCK:
            with self.subTest(name):
                if name != "F32" and name not in formats.READ_ONLY:
                    self.check_quantizer(name, base.quantize(name, values), values)
                data = self.random_blocks(name)
                self.check_dequantizer(name, base.dequantize(name, data, COLUMNS), data)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
