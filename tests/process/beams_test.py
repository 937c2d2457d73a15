#!/usr/bin/env python3
"""best_of and beam search of `quire serve` with the demo model, against a beam search that this test does by itself, one
token at a time, through the same API.

usage: beams_test.py PROGRAM [unittest arguments]
"""
import concurrent.futures
import json
import math
import os
import sys
import unittest

from serving import Server, wait_for

PROGRAM = None  # set by main
DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/demo")
WIDEST = 12


def eos_ids():
    for name in ("generation_config.json", "config.json"):
        path = os.path.join(DEMO, name)
        if os.path.exists(path):
            with open(path) as file:
                ids = json.load(file).get("eos_token_id")
            if ids is not None:
                return ids if isinstance(ids, list) else [ids]
    return []


def token_ids(choice):
    return [int(token.removeprefix("token_id:")) for token in choice["logprobs"]["tokens"]]


class BeamsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM, "--max-num-seqs", str(WIDEST))
        cls.addClassCleanup(cls.server.close)

    def tearDown(self):
        wait_for("the end of all requests", lambda: self.server.metric("vllm:num_requests_running") == 0)
        wait_for("free KV blocks", lambda: self.server.metric("vllm:kv_cache_usage_perc") == 0)

    def complete(self, **fields):
        status, text = self.server.request("POST", "/v1/completions", {"model": "demo", **fields})
        self.assertEqual(status, 200, text)
        return json.loads(text)

    def refused(self, param, *words, path="/v1/completions", **fields):
        status, text = self.server.request("POST", path, {"model": "demo", **fields})
        self.assertEqual(status, 400, text)
        error = json.loads(text)["error"]
        self.assertEqual(error["param"], param, error)
        for word in words:
            self.assertIn(word, error["message"])

    def beams(self, **fields):
        return self.complete(**{"use_beam_search": True, "temperature": 0, "logprobs": 0,
                                "return_tokens_as_token_ids": True, **fields})["choices"]

    def likeliest(self, ids):
        """The 20 likeliest next tokens and their logprobs."""
        choice = self.complete(prompt=ids, max_tokens=1, temperature=0, logprobs=20,
                               return_tokens_as_token_ids=True)["choices"][0]
        top = choice["logprobs"]["top_logprobs"][0]
        return sorted(((lp, int(name.removeprefix("token_id:"))) for name, lp in top.items()), key=lambda x: (-x[0], x[1]))

    def search(self, prompt, width, max_tokens, length_penalty, early_stopping):
        """Hugging Face's beam search, from its definition."""
        ends = set(eos_ids())
        live, finished = [(0.0, [])], []
        score = lambda logprob, length: logprob / length ** length_penalty
        while live:
            extensions = []
            for logprob, output in live:
                extensions += [(logprob + lp, output + [token]) for lp, token in self.likeliest(prompt + output)]
            extensions.sort(key=lambda x: -x[0])
            live = []
            for rank, (logprob, output) in enumerate(extensions):
                if output[-1] in ends or len(output) == max_tokens:
                    if rank < width:
                        finished.append((score(logprob, len(output)), output))
                elif len(live) < width:
                    live.append((logprob, output))
            finished = sorted(finished, key=lambda x: -x[0])[:width]
            if len(finished) == width and live and early_stopping != "never":
                if early_stopping or finished[-1][0] >= score(live[0][0], len(live[0][1])):
                    break
        return finished

    def test_finds_what_the_definition_finds(self):
        prompt = json.loads(self.server.request("POST", "/tokenize", {"prompt": "I would like to"})[1])["tokens"]
        for width, length_penalty, early_stopping in ((3, 0, True), (3, 1, False), (2, 2, "never"), (4, 0.5, "never"),
                                                      (4, -1, False)):
            with self.subTest(width=width, length_penalty=length_penalty, early_stopping=early_stopping):
                got = self.beams(prompt=prompt, n=width, max_tokens=9, length_penalty=length_penalty,
                                 early_stopping=early_stopping)
                expected = self.search(prompt, width, 9, length_penalty, early_stopping)
                self.assertEqual([token_ids(choice) for choice in got], [output for _, output in expected])
                for choice, (score, output) in zip(got, expected):
                    own = sum(choice["logprobs"]["token_logprobs"]) / len(output) ** length_penalty
                    self.assertTrue(math.isclose(own, score, rel_tol=1e-5), (own, score))

    def test_more_beams_find_no_worse(self):
        ask = dict(prompt="A hotel in", max_tokens=12, length_penalty=0, early_stopping="never")
        best = [sum(self.beams(**ask, n=1, best_of=width)[0]["logprobs"]["token_logprobs"]) for width in (1, 12)]
        greedy = self.complete(prompt="A hotel in", max_tokens=12, temperature=0, logprobs=0)["choices"][0]
        self.assertAlmostEqual(best[0], sum(greedy["logprobs"]["token_logprobs"]), places=4)
        self.assertGreaterEqual(best[1], best[0])

    def test_a_stream_shows_settled_text_and_ends_like_the_whole(self):
        for n in (1, 3):
            ask = {"prompt": "I would like to book a", "max_tokens": 40, "use_beam_search": True, "n": n, "best_of": 4,
                   "ignore_eos": True}
            whole = self.complete(**ask)["choices"]
            status, text = self.server.request("POST", "/v1/completions", {**ask, "stream": True})
            self.assertEqual(status, 200, text)
            chunks = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
            for index in range(n):
                own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
                self.assertEqual("".join(c["text"] for c in own), whole[index]["text"])
                self.assertEqual([c["finish_reason"] for c in own][:-1], [None] * (len(own) - 1))
                self.assertEqual(own[-1]["finish_reason"], "length")
            if n == 1:
                self.assertGreater(len(chunks), 2, "nothing was settled before the end")

    def test_stop_texts_and_ids_end_beams(self):
        plain = self.beams(prompt="I would like to", n=1, best_of=3, max_tokens=10, ignore_eos=True)[0]
        text = plain["text"]
        stop = text[len(text) // 2:len(text) // 2 + 2]
        ended = self.beams(prompt="I would like to", n=3, max_tokens=10, ignore_eos=True, stop=[stop])
        by_text = [choice for choice in ended if choice["finish_reason"] == "stop"]
        self.assertTrue(by_text, ended)
        for choice in by_text:
            self.assertEqual(choice["stop_reason"], stop)
        for choice in ended:
            self.assertNotIn(stop, choice["text"])
        token = token_ids(plain)[4]
        by_id = self.beams(prompt="I would like to", n=3, max_tokens=10, ignore_eos=True, stop_token_ids=[token],
                           early_stopping=True)
        self.assertIn(token, [choice["stop_reason"] for choice in by_id])
        for choice in by_id:
            self.assertNotIn(token, token_ids(choice)[:-1])

    def test_chat_has_beams_too(self):
        status, answer = self.server.chat("I would like to book a hotel in London.", use_beam_search=True, n=2, best_of=4,
                                          max_tokens=20)
        self.assertEqual(status, 200, answer)
        texts = [choice["message"]["content"] for choice in answer["choices"]]
        self.assertEqual(len(set(texts)), 2, texts)

    # BATCH: the same beams beside other requests.
    def test_beams_do_not_depend_on_who_else_is_served(self):
        asks = [dict(prompt=prompt, n=2, best_of=width, max_tokens=24, ignore_eos=True)
                for prompt in ("Once upon a time", "I would like to book a hotel", "Once upon") for width in (3, 5)]
        alone = [self.beams(**ask) for ask in asks]
        with concurrent.futures.ThreadPoolExecutor(len(asks) + 4) as pool:
            others = [pool.submit(self.complete, prompt="The sea", max_tokens=60, ignore_eos=True, seed=i) for i in range(4)]
            together = list(pool.map(lambda ask: self.beams(**ask), asks))
            for other in others:
                other.result()
        self.assertEqual(alone, together)

    def test_best_of_returns_the_likeliest(self):
        ask = dict(prompt="Once upon a time", max_tokens=12, seed=5, temperature=1, logprobs=0)
        every = self.complete(**ask, n=8)["choices"]
        total = lambda choice: sum(choice["logprobs"]["token_logprobs"])
        best = self.complete(**ask, n=3, best_of=8)
        expected = sorted(every, key=lambda choice: -total(choice))[:3]
        self.assertEqual([choice["text"] for choice in best["choices"]], [choice["text"] for choice in expected])
        self.assertEqual([choice["index"] for choice in best["choices"]], [0, 1, 2])
        self.assertEqual(best["usage"]["completion_tokens"], sum(len(c["logprobs"]["tokens"]) for c in every))

    def test_what_is_too_much_is_refused(self):
        for path, base in (("/v1/completions", {"prompt": "x"}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})):
            beam = {**base, "use_beam_search": True, "path": path}
            self.refused("n", "128", path=path, **base, n=10**6)
            self.refused("best_of", path=path, **base, best_of=10**6)
            self.refused("n", "at most 12", **beam, n=WIDEST + 1, max_tokens=4)
            self.refused("best_of", "at most 12", **beam, best_of=100, max_tokens=4)
            self.refused("temperature", **beam, temperature=0.5)
            self.refused("repetition_penalty", **beam, repetition_penalty=1.2)
            self.refused("best_of", path=path, **base, best_of=3, stream=True)
            self.refused("early_stopping", path=path, **base, early_stopping=True)

    def test_beams_beyond_the_pool_are_refused(self):
        with Server(PROGRAM) as server:
            ask = {"model": "demo", "prompt": "Once upon a time", "use_beam_search": True, "ignore_eos": True}
            status, text = server.request("POST", "/v1/completions", {**ask, "n": 128, "max_tokens": 2000})
            self.assertEqual(status, 400, text)
            error = json.loads(text)["error"]
            self.assertEqual(error["param"], "n")
            self.assertIn("KV blocks", error["message"])
            status, text = server.request("POST", "/v1/completions", {**ask, "n": 2, "max_tokens": 20})
            self.assertEqual(status, 200, text)


def main():
    global PROGRAM
    PROGRAM = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])


if __name__ == "__main__":
    main()
