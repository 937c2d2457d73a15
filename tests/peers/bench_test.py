#!/usr/bin/env python3
"""The arithmetic of ./run bench peers: limits, rows, arguments. Needs neither the program nor llama.cpp.

usage: bench_test.py [unittest arguments]
"""
import contextlib
import io
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bench
import limits

KEYS = ["shape", "format", "work", "quire", "peer", "unit", "ratio", "ratio_min", "ratio_max", "limit_fraction"]
MACHINE = {"num_threads": 2, "read_gb_per_second": 50.0, "int8_gop_per_second": 1000.0, "bf16_gflop_per_second": 500.0,
           "fma_gflop_per_second": 250.0}


def tensor(name, *shape, bytes):
    return {"name": name, "type": "Q8_0", "shape": list(shape), "bytes": bytes}


# One layer with a matrix of 10 × 20 and a norm of 20, two bytes a weight; embeddings of 100 × 20.
INSPECTED = {
    "config": {"num_layers": 1, "num_heads": 4, "num_kv_heads": 2, "head_dim": 8},
    "tensors": [tensor("token_embd.weight", 100, 20, bytes=4000), tensor("blk.0.attn_q.weight", 10, 20, bytes=400),
                tensor("blk.0.attn_norm.weight", 20, bytes=80)],
}
UNTIED = {**INSPECTED, "tensors": [*INSPECTED["tensors"], tensor("output.weight", 100, 20, bytes=2125)]}


class LimitTest(unittest.TestCase):
    def test_a_tied_embedding_is_the_head_and_an_untied_one_is_not_read(self):
        tied, untied = limits.ModelCost.of(INSPECTED), limits.ModelCost.of(UNTIED)
        self.assertEqual((tied.layer_bytes, tied.head_bytes), (480, 4000))
        self.assertEqual((untied.layer_bytes, untied.head_bytes), (480, 2125))
        self.assertEqual((tied.layer_parameters, tied.head_parameters), (200, 2000))
        with self.assertRaises(ValueError):
            limits.ModelCost.of({**INSPECTED, "tensors": []})

    def test_a_step_reads_the_weights_once_and_the_cache_of_each_sequence(self):
        cost = limits.ModelCost.of(INSPECTED)
        self.assertEqual(cost.kv_bytes_per_token, 2 * 2 * 2 * 8)
        # Steps of 2, 3, 4 and 5 tokens.
        work = limits.Work("decode3", 3, 4)
        self.assertEqual(limits.mean_context(work), 3.5)
        self.assertEqual(limits.bytes_of(cost, work), 4480 + 3 * 3.5 * 64)

    def test_operations_by_hand(self):
        cost = limits.ModelCost.of(INSPECTED)
        # A prompt of 3: matrices for each, the head for the last, pairs 1 + 2 + 3.
        prompt = limits.Work.parse("prefill3")
        self.assertEqual(limits.operations_of(cost, prompt), 2 * 200 * 3 + 2 * 2000 + 6 * 4 * 4 * 8)
        step = limits.Work("decode2", 2, 4)
        self.assertEqual(limits.operations_of(cost, step), 2 * 2200 * 2 + 2 * 3.5 * 4 * 4 * 8)

    def test_which_limit_binds(self):
        cost = limits.ModelCost.of(INSPECTED)
        one, prompt = limits.Work.parse("decode1"), limits.Work.parse("prefill512")
        self.assertAlmostEqual(limits.limit(cost, one, MACHINE, "Q8_0"), 50e9 / limits.bytes_of(cost, one))
        self.assertAlmostEqual(limits.limit(cost, prompt, MACHINE, "Q8_0"), 512e12 / limits.operations_of(cost, prompt))
        for sequences in (2, 4000):
            work = limits.Work.parse(f"decode{sequences}")
            seconds = max(limits.bytes_of(cost, work) / 50e9, limits.operations_of(cost, work) / 1e12)
            self.assertAlmostEqual(limits.limit(cost, work, MACHINE, "Q8_0"), sequences / seconds)

    def test_which_units_compute_a_format(self):
        peaks = {kind: limits.peak_of(MACHINE, kind) / 1e9 for kind in ("F32", "F16", "BF16", "Q8_0", "Q4_K_M", "IQ4_XS")}
        self.assertEqual(peaks, {"F32": 250, "F16": 250, "BF16": 500, "Q8_0": 1000, "Q4_K_M": 1000, "IQ4_XS": 1000})
        # A machine without BF16 products reports 0 of them; on some they are slower than widened weights are.
        self.assertEqual(limits.peak_of({**MACHINE, "bf16_gflop_per_second": 0.0}, "BF16"), 250e9)

    def test_the_limits_in_words(self):
        self.assertEqual(limits.describe(MACHINE), "read 50.0 GB/s, INT8 1000 GOP/s, BF16 500 GFLOP/s, FP32 250 GFLOP/s")

    def test_works(self):
        self.assertEqual(limits.Work.parse("prefill2048").case, "prefill 2048")
        self.assertEqual(limits.Work.parse("decode1").case, "decode 128 1")
        self.assertEqual(limits.Work.parse("decode16").case, "decode 32 16")
        for wrong in ("decode", "decode0", "prefill-1", "encode5", "", "prefill5x"):
            with self.assertRaises(ValueError):
                limits.Work.parse(wrong)


class RowTest(unittest.TestCase):
    def test_a_row_has_exactly_the_promised_keys_and_medians_of_pairs(self):
        row = bench.make_row("shape", "Q8_0", limits.Work.parse("decode8"), [(10, 5, 20), (30, 10, 40), (12, 8, 24)])
        self.assertEqual(list(row), KEYS)
        self.assertEqual(row, {"shape": "shape", "format": "Q8_0", "work": "decode8", "quire": 12, "peer": 8,
                               "unit": "tokens/s", "ratio": 2, "ratio_min": 1.5, "ratio_max": 3, "limit_fraction": 0.5})
        self.assertEqual(json.loads(json.dumps(row)), row)
        self.assertIn("2.00  (1.50 – 3.00)", bench.row_text(row))

    def test_limits_are_those_around_the_measurement(self):
        self.assertEqual(bench.between({"a": 1.0}, {"a": 3.0}), {"a": 2.0})
        order, answers = [], iter([{"x": 2.0}, {"x": 4.0}])

        class Fake:
            def __init__(self, name, rate):
                self.name, self.rate = name, rate

            def measure(self, *_):
                order.append(self.name)
                return next(answers) if self.name == "machine" else self.rate

        pair = bench.measure_pair(Fake("machine", 0), Fake("quire", 7), Fake("peer", 5), None, lambda machine: machine["x"])
        self.assertEqual(pair, (7, 5, 3.0))
        self.assertEqual(order, ["machine", "quire", "machine", "peer"])


class ArgumentTest(unittest.TestCase):
    def test_all_is_everything_that_the_table_promises(self):
        args = bench.parse_arguments(["--all"])
        self.assertEqual(args.shapes, ["qwen2.5-0.5b", "llama-3.2-1b"])
        self.assertEqual(args.formats, ["BF16", "Q8_0", "Q4_0", "Q4_K_M"])
        self.assertEqual(args.works, ["prefill512", "prefill2048", *(f"decode{count}" for count in (1, 2, 4, 8, 16, 32))])

    def test_what_is_asked_for_wins(self):
        args = bench.parse_arguments(["--all", "--works", "decode4", "--pairs", "2", "--shapes", "qwen2.5-7b"])
        self.assertEqual((args.works, args.pairs, args.shapes), (["decode4"], 2, ["qwen2.5-7b"]))
        self.assertEqual(len(bench.parse_arguments([]).works), 3)

    def test_wrong_usage_has_status_2(self):
        for wrong in (["--works", "wobble"], ["--pairs", "0"], ["--steps", "0"], ["--nonsense"]):
            with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(io.StringIO()):
                bench.parse_arguments(wrong)
            self.assertEqual(caught.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
