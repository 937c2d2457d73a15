#!/usr/bin/env python3
"""The other commands of the program, as a user types them, on the demo model.

usage: command_test.py PROGRAM [unittest arguments]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None  # set by main
DEMO = pathlib.Path(__file__).resolve().parent.parent.parent / "models" / "demo"
SMALL = ["--kv-memory", "64MiB", "--threads", "1"]


def quire(*arguments, **options):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120, **options)


class CommandTest(unittest.TestCase):
    def expect_success(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_help_of_every_command(self):
        top = self.expect_success(quire("--help"))
        for command in ("serve", "chat", "run", "bench", "simulate", "inspect", "quantize", "pack", "perplexity", "verify",
                        "engine"):
            self.assertIn(f"\n  {command} ", top)
            text = self.expect_success(quire(command, "--help"))
            self.assertTrue(text.startswith(f"Usage: quire {command}"), text)
            self.assertLessEqual(max(map(len, text.splitlines())), 120)
        self.assertRegex(self.expect_success(quire("--version")), r"^quire \d+\.\d+\.\d+\n$")

    def test_wrong_usage_has_status_2_and_names_what_is_wrong(self):
        for arguments, words in ((["frobnicate"], "frobnicate"), (["serve", "--no-such-flag"], "--no-such-flag"),
                                 (["run"], "--prompt"), (["run", "-p", "x", "--max-num-seqs", "many"], "--max-num-seqs"),
                                 (["run", "-p", "x", "--kv-memory", "lots"], "lots"),
                                 (["run", "-p", "x", "--isa", "mmx"], "mmx"),
                                 (["run", "-p", "x", "--temperature", "-1"], "--temperature"),
                                 (["run", "-p", "x", "--max-tokens", "-1"], "--max-tokens"), (["engine"], "--fd"),
                                 (["bench", "model", "--case", "wobble"], "--case"),
                                 (["serve", "--log-level", "loud"], "--log-level"),
                                 (["serve", "--port", "0", "--host", "example.org"], "--host"),
                                 (["serve", "--port", "0", "--served-model-name", ""], "--served-model-name"),
                                 (["run", "-p", "x", "--max-model-len", "1"], "--max-model-len")):
            run = quire(*arguments)
            self.assertEqual(run.returncode, 2, f"{arguments}: {run.stderr}")
            self.assertIn(words, run.stderr)
            self.assertEqual(run.stdout, "")

    def test_a_model_that_is_not_there_is_a_failure_of_every_command(self):
        for arguments in (["run", "/does/not/exist", "-p", "x"], ["inspect", "/does/not/exist"],
                          ["quantize", "/does/not/exist", "/does/not/exist.gguf"], ["verify", "/does/not/exist"],
                          ["pack", "/does/not/exist"], ["bench", "latency", "/does/not/exist"],
                          ["bench", "sampling", "/does/not/exist"], ["simulate", "check", "/does/not/exist"],
                          ["bench", "papers", "radix", "--model", "/does/not/exist"],
                          ["perplexity", "/does/not/exist", __file__], ["perplexity", DEMO, "/does/not/exist"],
                          ["perplexity", DEMO, __file__, "--reference", "/does/not/exist"]):
            run = quire(*arguments)
            self.assertEqual(run.returncode, 1, f"{arguments}: {run.stderr}")
            self.assertIn("/does/not/exist", run.stderr)

    def test_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w") as full:
            run = subprocess.run([PROGRAM, "inspect"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(run.returncode, 1)
        self.assertTrue(run.stderr)

    # A hostile file can say anything, but not to the terminal.
    def test_names_in_a_file_do_not_steer_the_terminal(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.gguf")
            self.expect_success(quire("quantize", DEMO, path, "--type", "Q8_0"))
            data = pathlib.Path(path).read_bytes()
            self.assertIn(b"blk.0.attn_q.weight", data)
            pathlib.Path(path).write_bytes(data.replace(b"blk.0.attn_q.weight", b"\x1b]0;\x07\xff blk_q\x1b[2Jxxx"))
            for run in (quire("inspect", path, "--tensors"), quire("run", path, "-p", "x", *SMALL)):
                self.assertNotRegex(run.stdout + run.stderr, "[\\x00-\\x09\\x0b-\\x1f\\x7f]")
            self.assertEqual(run.returncode, 1)
            self.assertIn(path, run.stderr)

    def test_the_environment_forces_a_tier_or_fails_loudly(self):
        run = quire("run", "-p", "x", env={**os.environ, "QUIRE_ISA": "mmx"})
        self.assertEqual(run.returncode, 2)
        self.assertIn("mmx", run.stderr)
        run = quire("bench", "latency", "--input-len", "4", "--output-len", "2", "--num-prompts", "1", *SMALL,
                    env={**os.environ, "QUIRE_ISA": "reference"})
        self.assertIn("reference", self.expect_success(run))

    def test_run_continues_the_golden_prompts(self):
        for case in json.loads((DEMO / "golden.json").read_text()):
            expected = case["greedy_text"].split("<|im_end|>")[0] + "\n"
            arguments = ["--temperature", "0", "--max-tokens", "48", *SMALL]
            self.assertEqual(self.expect_success(quire("run", "-p", case["prompt"], *arguments)), expected)
            self.assertEqual(self.expect_success(quire("run", "-p", "-", *arguments, input=case["prompt"])), expected)

    def test_run_with_a_seed_is_repeatable(self):
        arguments = ["run", "-p", "Hello", "--chat", "--seed", "7", "--temperature", "1.5", "--max-tokens", "12", *SMALL]
        self.assertEqual(self.expect_success(quire(*arguments)), self.expect_success(quire(*arguments)))

    def test_run_stops_at_a_text(self):
        arguments = ["run", "-p", "Hello", "--chat", "--temperature", "0", "--max-tokens", "30", *SMALL]
        whole = self.expect_success(quire(*arguments)).rstrip("\n")
        stop = whole[len(whole) // 2:][:2]
        self.assertEqual(self.expect_success(quire(*arguments, "--stop", stop)).rstrip("\n"), whole.split(stop)[0])

    def test_chat_holds_a_conversation(self):
        run = quire("chat", "--temperature", "0", "--max-tokens", "20", *SMALL,
                    input="Hello!\n/nonsense\nAnd again?\n/reset\nHello!\n/exit\nnever read\n")
        lines = self.expect_success(run)
        self.assertIn("there is no command /nonsense", lines)
        self.assertIn("a new conversation", lines)

    def test_bench_reports_what_it_ran(self):
        out = self.expect_success(quire("bench", "throughput", "--input-len", "16", "--output-len", "4", "--num-prompts",
                                        "6", "--max-concurrency", "3", "--json", *SMALL))
        report = json.loads(out)
        self.assertEqual(report["input_tokens"], 96)
        self.assertEqual(report["output_tokens"], 24)
        self.assertGreater(report["output_tokens_per_second"], 0)
        out = self.expect_success(quire("bench", "throughput", "--input-len", "64", "--prefix-len", "48", "--output-len",
                                        "2", "--num-prompts", "4", "--max-concurrency", "1", "--json", *SMALL))
        self.assertGreaterEqual(json.loads(out)["cached_tokens"], 4 * 48)
        out = self.expect_success(quire("bench", "sampling", "--num-seqs", "3", "--steps", "2", "--repeats", "1", "--json"))
        self.assertEqual([row["sampling"] for row in json.loads(out)["rows"]][0], "greedy")
        out = self.expect_success(quire("bench", "model", "--stdin", *SMALL, input="prefill 32\ndecode 8 2\n"))
        self.assertEqual(len([json.loads(line) for line in out.splitlines()]), 2)

    def test_bench_measures_the_machine(self):
        limits = json.loads(self.expect_success(quire("bench", "roofline", "--repeats", "1", "--working-set", "16MiB",
                                                      "--json")))
        self.assertGreater(limits["read_gb_per_second"], 0)
        rows = json.loads(self.expect_success(quire("bench", "kernels", "--model", "qwen2.5-0.5b", "--projection", "o_proj",
                                                    "--format", "bf16,int8g32", "--rows", "1,4", "--repeats", "1",
                                                    "--working-set", "4MiB", "--json")))
        self.assertEqual(len(rows), 4)
        rows = json.loads(self.expect_success(quire("bench", "kernels", "--kernel", "attention,max_value", "--model",
                                                    "qwen2.5-0.5b", "--kv-cache-dtype", "int8", "--sequences", "3",
                                                    "--context", "300", "--prefix", "0,256", "--rows", "2", "--repeats",
                                                    "1", "--working-set", "4MiB", "--json")))
        self.assertEqual([row["kernel"] for row in rows], ["attention"] * 3 + ["max_value"])
        self.assertEqual([row.get("grouped") for row in rows], [False, True, False, None])
        for flags, named in ((["--kernel", "attention", "--rows", "3"], "--rows"), (["--kernel", "wobble"], "silu_mul"),
                             (["--format", "bf16", "--context", "9"], "--context"),
                             (["--context", "256", "--prefix", "256"], "--prefix")):
            run = quire("bench", "kernels", *flags)
            self.assertEqual(run.returncode, 2, flags)
            self.assertIn(named, run.stderr)
        run = quire("bench", "kernels", "--projection", "q_proj")
        self.assertEqual(run.returncode, 2)
        self.assertIn("down_proj", run.stderr)

    def test_roofline_answers_line_by_line(self):
        out = self.expect_success(quire("bench", "roofline", "--stdin", "--repeats", "1", "--working-set", "16MiB",
                                        input="one\ntwo\n"))
        self.assertEqual([json.loads(line)["read_gb_per_second"] > 0 for line in out.splitlines()], [True, True])

    def test_perplexity_of_a_text_and_against_a_reference(self):
        with tempfile.TemporaryDirectory() as folder:
            text, quantised = os.path.join(folder, "text"), os.path.join(folder, "model.gguf")
            golden = json.loads((DEMO / "golden.json").read_text())
            pathlib.Path(text).write_text("".join(case["prompt"] + case["greedy_text"] for case in golden))
            self.expect_success(quire("quantize", DEMO, quantised, "--type", "Q4_0"))
            flags = ["--json", "--threads", "1", "--context", "128"]
            report = json.loads(self.expect_success(quire("perplexity", DEMO, text, *flags)))
            self.assertEqual(report["scored_tokens"], report["text_tokens"] - 1)
            self.assertFalse(report["bos"])
            again = json.loads(self.expect_success(quire("perplexity", quantised, text, "--reference", DEMO, *flags)))
            self.assertEqual(again["reference"]["nll"], report["nll"])
            self.assertGreater(again["reference"]["kl_mean"], 0)
            self.assertGreater(again["reference"]["same_top"], 0.8)
            same = json.loads(self.expect_success(quire("perplexity", DEMO, text, "--reference", DEMO, *flags)))
            self.assertEqual((same["reference"]["kl_max"], same["reference"]["same_top"]), (0, 1))
            self.assertIn("KL divergence", self.expect_success(quire("perplexity", DEMO, text, "--reference", DEMO,
                                                                     "--max-windows", "1")))

    def test_quantising_while_loading(self):
        with tempfile.TemporaryDirectory() as folder:
            text, errors, int4 = (os.path.join(folder, name) for name in ("text", "errors.tsv", "int4.gguf"))
            golden = json.loads((DEMO / "golden.json").read_text())
            pathlib.Path(text).write_text("".join(case["prompt"] + case["greedy_text"] for case in golden))
            flags = ["--json", "--threads", "1", "--context", "128"]
            run = quire("perplexity", DEMO, text, "--quantization", "int4", "--quantization-report", errors,
                        "--reference", DEMO, *flags)
            loaded = json.loads(self.expect_success(run))
            self.assertIn("43 matrices quantised to int4, relative RMS error 0.", run.stderr)
            rows = [line.split("\t") for line in pathlib.Path(errors).read_text().splitlines()]
            self.assertEqual((rows[0], len(rows)), (["matrix", "type", "relative_rms_error", "outlier_columns",
                                                     "error_without_them"], 44))
            values = [float(row[2]) for row in rows[1:]]
            self.assertEqual(values, sorted(values, reverse=True))
            # The file that is written with this name holds the same weights.
            self.expect_success(quire("quantize", DEMO, int4, "--type", "int4"))
            written = json.loads(self.expect_success(quire("perplexity", int4, text, "--reference", DEMO, *flags)))
            self.assertEqual(written["nll"], loaded["nll"])
            self.assertEqual(written["reference"], loaded["reference"])

            for arguments, status, words in (
                    ([DEMO, text, "--quantization", "int3"], 2, "known are none, int8, int4, fp8"),
                    ([DEMO, text, "--quantization-report", errors], 2, "--quantization-report"),
                    ([int4, text, "--quantization", "int8"], 2, "already; it can be loaded as it is")):
                run = quire("perplexity", *arguments)
                self.assertEqual((run.returncode, run.stdout), (status, ""), run.stderr)
                self.assertIn(words, run.stderr)

    def test_perplexity_says_what_it_cannot_do(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text"
            for content, arguments, status, words in (("", [], 1, "is empty"), ("x", [], 1, "at least two"),
                                                      ("some words", ["--context", "5000"], 2, "--context"),
                                                      ("some words", ["--context", "1"], 2, "--context"),
                                                      ("some words", ["--stride", "513"], 2, "--stride"),
                                                      ("some words", ["--max-windows", "-1"], 2, "--max-windows")):
                text.write_text(content)
                run = quire("perplexity", DEMO, text, *arguments)
                self.assertEqual((run.returncode, run.stdout), (status, ""), run.stderr)
                self.assertIn(words, run.stderr)
            stories = DEMO.parents[2] / "shared/models/stories260K/stories260K-f32.gguf"
            if not stories.exists():
                self.skipTest(f"the comparison with another vocabulary: {stories} is not there")
            run = quire("perplexity", DEMO, text, "--reference", stories)
            self.assertEqual(run.returncode, 1)
            self.assertIn("different vocabularies", run.stderr)
            # This one begins texts with BOS, which lets the first token be scored.
            report = json.loads(self.expect_success(quire("perplexity", stories, text, "--json")))
            self.assertTrue(report["bos"])
            self.assertEqual(report["scored_tokens"], report["text_tokens"])

    def test_inspect_counts_the_tensors(self):
        report = json.loads(self.expect_success(quire("inspect", str(DEMO), "--json")))
        self.assertEqual(report["config"]["architecture"], "Qwen3ForCausalLM")
        self.assertEqual(report["config"]["num_layers"], 6)
        self.assertEqual(sum(total["tensors"] for total in report["types"].values()), len(report["tensors"]))
        self.assertIn("embed_tokens", self.expect_success(quire("inspect", str(DEMO), "--tensors")))

    def test_quantize_writes_what_run_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "demo-q8.gguf")
            out = self.expect_success(quire("quantize", str(DEMO), output, "--type", "Q8_0"))
            self.assertIn(output, out)
            self.assertEqual(quire("quantize", str(DEMO), output).returncode, 1, "an existing file is not replaced")
            self.assertIn("Q8_0", json.loads(self.expect_success(quire("inspect", output, "--json")))["types"])
            text = self.expect_success(quire("run", output, "-p", "Hello!", "--chat", "--temperature", "0", *SMALL))
            self.assertTrue(text.strip())
            run = quire("quantize", str(DEMO), os.path.join(folder, "x.gguf"), "--type", "Q17")
            self.assertEqual(run.returncode, 2)
            self.assertIn("Q17", run.stderr)

    def test_pack_writes_what_later_starts_map(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "XDG_CACHE_HOME": folder}
            prompt = ["run", "-p", "Hello!", "--chat", "--temperature", "0", "--max-tokens", "12", *SMALL]
            text = self.expect_success(quire(*prompt, "--packed-cache", "off"))
            self.assertEqual(quire("pack", DEMO, "--verify", env=environment).returncode, 1)
            self.assertIn("written in", self.expect_success(quire("pack", DEMO, env=environment)))
            file, = pathlib.Path(folder, "quire").iterdir()
            self.assertIn("is whole", self.expect_success(quire("pack", DEMO, env=environment)))
            self.assertEqual(self.expect_success(quire(*prompt, env=environment)), text)

            whole = file.read_bytes()
            file.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
            run = quire("pack", DEMO, "--verify", env=environment)
            self.assertEqual(run.returncode, 1)
            self.assertIn("is damaged", run.stderr)
            self.assertIn("written in", self.expect_success(quire("pack", DEMO, env=environment)))
            self.assertEqual(file.read_bytes(), whole)

    def test_pack_quantises(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "XDG_CACHE_HOME": folder}
            errors = [pathlib.Path(folder, name) for name in ("packed.tsv", "mapped.tsv")]
            prompt = ["run", "-p", "Hello!", "--chat", "--temperature", "0", "--max-tokens", "12", "--quantization", "int4",
                      *SMALL]
            run = quire(*prompt, "--packed-cache", "off", "--quantization-report", errors[0])
            text = self.expect_success(run)
            pack = ["pack", DEMO, "--quantization", "int4"]
            self.assertEqual(quire(*pack, "--verify", env=environment).returncode, 1)
            out = self.expect_success(quire(*pack, env=environment))
            self.assertIn("43 matrices quantised to int4, relative RMS error 0.", out)
            self.assertIn("is whole", self.expect_success(quire(*pack, "--verify", env=environment)))
            self.assertEqual(quire("pack", DEMO, "--verify", env=environment).returncode, 1, "that is another file")
            # The start that maps the weights knows what they lost.
            run = quire(*prompt, "--quantization-report", errors[1], env=environment)
            self.assertEqual(self.expect_success(run), text)
            self.assertEqual(errors[1].read_text(), errors[0].read_text())

            file = os.path.join(folder, "demo.packed")
            self.expect_success(quire("pack", DEMO, file, "--quantization", "int8"))
            run = quire("pack", DEMO, file, "--quantization", "int4", "--verify")
            self.assertEqual(run.returncode, 1)
            self.assertIn("another quantization", run.stderr)
            run = quire("pack", DEMO, file, "--quantization", "int3")
            self.assertEqual(run.returncode, 2)
            self.assertIn("known are none, int8, int4, fp8", run.stderr)

    def test_packed_weights_that_are_of_no_use_cost_a_warning(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "demo.packed")
            prompt = ["run", "-p", "Hello!", "--chat", "--temperature", "0", "--max-tokens", "12", *SMALL]
            text = self.expect_success(quire(*prompt, "--packed-cache", "off"))
            self.expect_success(quire("pack", DEMO, file))
            whole = file.read_bytes()
            for bad in (whole[:-1], whole[:100], b"", whole[:-20] + b"x" * 20, whole[:-128] + b"\xff" * 64 + whole[-64:]):
                file.write_bytes(bad)
                run = quire(*prompt, "--packed-cache", f"read:{file}")
                self.assertEqual(self.expect_success(run), text)
                self.assertIn("packed weights are not used", run.stderr)
                self.assertEqual(file.read_bytes(), bad)
            for place in ("/dev/null/cache", "/proc/cache"):
                run = quire(*prompt, "--packed-cache", place)
                self.assertEqual(self.expect_success(run), text)
                self.assertIn("packed weights are not", run.stderr)
                self.assertEqual(quire("pack", DEMO, place).returncode, 1)

    def test_verify_finds_the_demo_model_invariant(self):
        out = self.expect_success(quire("verify", "--isa", "auto", "--num-requests", "12", "--max-tokens", "8"))
        self.assertIn("to the bit", out)
        self.assertIn("equal", out)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
