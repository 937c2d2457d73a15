#!/usr/bin/env python3
"""Several models in one server, with real engine processes: the demo model under several names, and a broken one.

usage: models_test.py PROGRAM [unittest arguments]
"""
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

from serving import Server, process_is_alive, wait_for

PROGRAM = MAKE_MODEL = None  # set by main
DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/demo")
MEBIBYTE = 1 << 20
ONE = "100MiB"  # room for one demo model with the 64 MiB of keys and values that serving.py gives it
TWO = "150MiB"


def state(server, name):
    status, body = server.request("GET", f"/v1/models/{name}")
    assert status == 200, body
    return json.loads(body)["status"]


def complete(server, name, **fields):
    status, body = server.request("POST", "/v1/completions", {"model": name, "prompt": "I would like to book",
                                                              "max_tokens": 12, "temperature": 0, **fields})
    return status, json.loads(body)


def engine_pids(server, name):
    return [int(pid) for pid in re.findall(rf"model {name}: engine process (\d+) started", server.stderr())]


def memory_taken(server):
    return sum(float(value) for value in
               re.findall(r"^quire:model_memory_bytes{[^}]*} (\S+)$", server.request("GET", "/metrics")[1], re.M))


class ModelsFolder:
    """A folder of models: links to the demo model, and one that cannot be loaded."""

    def __init__(self, names, broken=None):
        self.folder = tempfile.TemporaryDirectory()
        self.path = self.folder.name
        for name in names:
            os.symlink(os.path.abspath(DEMO), os.path.join(self.path, name))
        os.mkdir(os.path.join(self.path, "no-model"))
        os.mkdir(os.path.join(self.path, ".hidden"))
        if broken:
            shutil.copytree(DEMO, os.path.join(self.path, broken))
            config = os.path.join(self.path, broken, "config.json")
            with open(config) as file:
                fields = json.load(file)
            fields["num_hidden_layers"] += 1
            with open(config, "w") as file:
                json.dump(fields, file)

    def __enter__(self):
        return self.path

    def __exit__(self, *exception):
        self.folder.cleanup()


class ModelsTest(unittest.TestCase):
    def test_two_models_answer_like_one(self):
        with Server(PROGRAM) as server:
            alone = complete(server, "demo", logprobs=3)[1]["choices"]
        with Server(PROGRAM, "--model", f"a={DEMO}", "--model", f"b={DEMO}", "--memory", TWO) as server:
            self.assertIn("at start   a, b", server.stdout())
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(lambda name: (name, *complete(server, name, logprobs=3)), "abab"))
            for name, status, answer in answers:
                self.assertEqual(status, 200, answer)
                self.assertEqual(answer["model"], name)
                self.assertEqual(answer["choices"], alone)
            self.assertEqual(server.chat("Hello!", model="b", max_tokens=4)[0], 200)
            self.assertEqual(server.chat("Hello!", model="c")[0], 404)
            self.assertEqual({state(server, name)["value"] for name in "ab"}, {"loaded"})
            text = server.request("GET", "/metrics")[1]
            for name in "ab":
                self.assertRegex(text, rf'vllm:request_success_total{{[^}}]*model_name="{name}"[^}}]*}} [1-9]')

    def test_a_folder_is_served_within_its_memory(self):
        with ModelsFolder(["one", "two", "three"], broken="broken") as folder, \
                Server(PROGRAM, "--models-dir", folder, "--memory", TWO) as server:
            self.assertIn("on demand  broken, one, three, two", server.stdout())
            names = [model["id"] for model in json.loads(server.request("GET", "/v1/models")[1])["data"]]
            self.assertEqual(names, ["broken", "one", "three", "two"])
            peak, stop = [0], threading.Event()

            def watch():
                while not stop.wait(0.02):
                    peak[0] = max(peak[0], memory_taken(server))

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                with concurrent.futures.ThreadPoolExecutor(6) as pool:
                    wanted = ["one", "two", "three", "one", "three", "two", "one", "two", "three"]
                    answers = list(pool.map(lambda name: complete(server, name), wanted))
            finally:
                stop.set()
                watcher.join()
            self.assertEqual([status for status, _ in answers], [200] * len(wanted), answers)
            self.assertEqual({answer["choices"][0]["text"] for _, answer in answers},
                             {answers[0][1]["choices"][0]["text"]})
            self.assertGreater(peak[0], 100 * MEBIBYTE)
            self.assertLessEqual(peak[0], 150 * MEBIBYTE)
            status, failure = complete(server, "broken")
            self.assertEqual(status, 500)
            self.assertEqual(failure["error"]["code"], "model_load_failed")
            self.assertRegex(failure["error"]["message"], "the model broken cannot be loaded: .*model.layers.6")
            self.assertEqual(complete(server, "one")[0], 200)
            # As many processes are left as models are loaded.
            wait_for("the last unload", lambda: len([name for name in names if state(server, name)["value"] ==
                                                     "unloading"]) == 0)
            loaded = [name for name in names if state(server, name)["value"] == "loaded"]
            alive = [pid for name in names for pid in engine_pids(server, name) if process_is_alive(pid)]
            self.assertEqual(len(alive), len(loaded))

    # Different architectures, tokenizers and files, one at a time; whether a model was unloaded meanwhile cannot be told
    # from what it says.
    def test_models_of_all_kinds_take_turns(self):
        self.assertTrue(os.path.exists(MAKE_MODEL), f"{MAKE_MODEL} is not built")
        with tempfile.TemporaryDirectory() as folder:
            for shape, file, *flags in (("tiny-qwen3", "qwen"), ("tiny-llama2", "llama.gguf", "--type", "Q8_0"),
                                        ("tiny-mistral", "mistral.gguf", "--type", "Q4_K_M")):
                subprocess.run([MAKE_MODEL, shape, os.path.join(folder, file), "--quiet", *flags], check=True)
            names = ["llama", "mistral", "qwen"]
            with Server(PROGRAM, "--models-dir", folder, "--models-max", "1") as server:
                answers = {}
                for name in names + names + ["mistral", "mistral", "llama"]:
                    status, answer = complete(server, name, logprobs=2)
                    self.assertEqual(status, 200, answer)
                    self.assertEqual(answers.setdefault(name, answer["choices"]), answer["choices"])
                    loaded = [other for other in names if state(server, other)["value"] == "loaded"]
                    self.assertEqual(loaded, [name])
                self.assertEqual(len({answers[name][0]["text"] for name in names}), 3)
                self.assertEqual([len(engine_pids(server, name)) for name in names], [3, 3, 2])

    def test_a_killed_engine_leaves_the_other_model_alone(self):
        with Server(PROGRAM, "--model", f"a={DEMO}", "--model", f"b={DEMO}", "--memory", TWO) as server:
            connection_a, stream_a = server.stream(model="a")
            connection_b, stream_b = server.stream(model="b", max_tokens=300)
            with contextlib.closing(connection_a), contextlib.closing(connection_b):
                killed = engine_pids(server, "a")[-1]
                subprocess.run(["kill", "-KILL", str(killed)], check=True)
                self.assertIn('"error"', stream_a.read().decode())
                self.assertIn("data: [DONE]", stream_b.read().decode())
            self.assertEqual(server.health(), 200)
            wait_for("a new engine of a", lambda: len(engine_pids(server, "a")) == 2)
            wait_for("its readiness", lambda: server.request("GET", "/health?model=a")[0] == 200)
            self.assertEqual(complete(server, "a")[0], 200)
            self.assertEqual(len(engine_pids(server, "b")), 1)

    def test_models_are_loaded_and_unloaded_when_asked(self):
        with Server(PROGRAM, "--model", f"a={DEMO}", "--models-max", "1") as server:
            first = engine_pids(server, "a")[-1]
            self.assertEqual(server.request("POST", "/models/unload", {"model": "a"})[0], 200)
            wait_for("the unload", lambda: state(server, "a")["value"] == "unloaded")
            wait_for("the end of the process", lambda: not process_is_alive(first))
            self.assertEqual(memory_taken(server), 0)
            self.assertEqual(server.request("POST", "/models/load", {"model": "a"}), (200, '{"success":true}'))
            self.assertEqual(state(server, "a")["value"], "loaded")
            self.assertEqual(complete(server, "a")[0], 200)

    def test_idle_models_are_unloaded(self):
        with Server(PROGRAM, "--model", f"a={DEMO}", "--model-idle-timeout", "300ms") as server:
            wait_for("the unload", lambda: state(server, "a")["value"] == "unloaded")
            self.assertEqual(complete(server, "a")[0], 200)

    def test_sigterm_drains_all_models(self):
        with Server(PROGRAM, "--model", f"a={DEMO}", "--model", f"b={DEMO}", "--memory", TWO) as server:
            pids = [engine_pids(server, name)[-1] for name in "ab"]
            streams = [server.stream(model=name, max_tokens=200) for name in "ab"]
            server.signal(signal.SIGTERM)
            for connection, response in streams:
                with contextlib.closing(connection):
                    self.assertIn("data: [DONE]", response.read().decode())
            self.assertEqual(server.wait(), 0)
            self.assertFalse(any(process_is_alive(pid) for pid in pids))

    def test_a_killed_front_end_leaves_no_orphans(self):
        with Server(PROGRAM, "--model", f"a={DEMO}", "--model", f"b={DEMO}", "--memory", TWO) as server:
            pids = [engine_pids(server, name)[-1] for name in "ab"]
            server.signal(signal.SIGKILL)
            wait_for("their end", lambda: not any(process_is_alive(pid) for pid in pids), seconds=5)

    def test_what_does_not_fit_is_said(self):
        def run(*flags):
            return subprocess.run([PROGRAM, "serve", "--port", "0", *flags], capture_output=True, text=True, timeout=60)

        refused = run("--model", f"a={DEMO}", "--memory", "5MiB")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertRegex(refused.stderr, "the model a cannot be loaded: its weights take 8.[0-9] MiB, and 0.0 MiB are "
                                         "left for keys and values of the 5.0 MiB that all models may take together")
        with ModelsFolder(["one"]) as folder:
            with Server(PROGRAM, "--models-dir", folder, "--memory", "5MiB") as server:
                status, answer = complete(server, "one")
                self.assertEqual(status, 500)
                self.assertIn("its weights take", answer["error"]["message"])
            for flags, word in ((["--models-dir", os.path.join(folder, "no-model")], "there is no model in"),
                                (["--models-dir", "/does/not/exist"], "--models-dir"),
                                (["--models-max", "0"], "--models-max"),
                                (["--memory", "many"], "--memory"),
                                (["--model", "=x"], "--model"),
                                (["--models-dir", folder, "--quantization-report", "x"], "--quantization-report"),
                                (["--model", f"a={DEMO}", "--models-dir", folder, "--packed-cache", "x.packed"],
                                 "--packed-cache"),
                                (["--model", f"a={DEMO}", "--model", f"a={DEMO}"], "both called a"),
                                (["--model", f"a={DEMO}", "--models-dir", folder, "--served-model-name", "x"],
                                 "--served-model-name")):
                refused = run(*flags)
                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertIn(word, refused.stderr)
                self.assertNotIn("engine process", refused.stderr)

    def test_flags_hold_for_all_models(self):
        with Server(PROGRAM, "--model", f"a={DEMO}", "--model", f"b={DEMO}", "--memory", TWO, "--quantization", "int8",
                    "--kv-cache-dtype", "int8") as server:
            answers = [complete(server, name) for name in "ab"]
            self.assertEqual([status for status, _ in answers], [200, 200], answers)
            self.assertEqual(answers[0][1]["choices"], answers[1][1]["choices"])

    # One model with a name of its own is served as ever.
    def test_one_model_may_have_another_name(self):
        with Server(PROGRAM, "--model", f"mine={DEMO}") as server:
            self.assertEqual(complete(server, "mine")[0], 200)
            self.assertEqual(complete(server, "demo")[0], 404)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    MAKE_MODEL = os.path.join(os.path.dirname(os.path.abspath(PROGRAM)), "make_model")
    unittest.main(verbosity=2)
