#!/usr/bin/env python3
"""Every answer, stream chunk and error of a running server against OpenAI's API document.

usage: schema_test.py DOCUMENT BASE_URL       (exit status 77: something that the test needs is not there)
"""
import http.client
import itertools
import json
import os
import sys
import unittest
import urllib.parse

try:
    from openai_schema import OpenAiSchema
except ImportError as error:
    print(f"skipped: {error} (package python3-jsonschema)")
    sys.exit(77)

SCHEMA = None
BASE = None
MODEL = None


def request(method, path, body=None, headers=None):
    """Returns status, headers and text of one request on a connection of its own."""
    connection = http.client.HTTPConnection(BASE.hostname, BASE.port, timeout=120)
    try:
        data = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode("utf-8")
    finally:
        connection.close()


def parse_events(text):
    """The data of the server-sent events; any other line is an error of framing."""
    events = []
    assert text.endswith("\n\n"), repr(text[-50:])
    for block in text[:-2].split("\n\n"):
        if block.startswith(":"):
            continue
        assert block.startswith("data: ") and "\n" not in block, repr(block)
        events.append(block[6:])
    return events


CHAT = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell me about the sea."}],
        "max_tokens": 12, "seed": 1}
TEXT = {"prompt": "Once upon a time", "max_tokens": 12, "seed": 1}

# Each is tried whole and streamed.
CHAT_VARIANTS = [
    {},
    {"temperature": 0},
    {"n": 2},
    {"logprobs": True},
    {"logprobs": True, "top_logprobs": 5, "n": 2},
    {"logprobs": True, "top_logprobs": 20, "temperature": 1.5, "top_k": 1},
    {"stop": ["e"]},
    {"stop": "zzzz", "min_tokens": 3},
    {"ignore_eos": True},
    {"max_completion_tokens": 3},
    {"max_tokens": 1},
    {"return_token_ids": True, "return_tokens_as_token_ids": True, "logprobs": True, "top_logprobs": 1},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello!"}]}]},
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "The sea"}],
     "continue_final_message": True},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
     "tool_choice": "auto"},
    {"user": "u", "store": False, "metadata": {"a": "b"}, "service_tier": "auto", "unheard_of": 1},
    {"presence_penalty": 1, "frequency_penalty": 1, "repetition_penalty": 1.1, "logit_bias": {"5": -100}},
]
TEXT_VARIANTS = [
    {},
    {"temperature": 0},
    {"n": 2},
    {"logprobs": 0},
    {"logprobs": 5},
    {"echo": True},
    {"echo": True, "logprobs": 2},
    {"echo": True, "logprobs": 1, "max_tokens": 0},
    {"echo": True, "max_tokens": 0},
    {"prompt": ["One", "Two"], "n": 2, "logprobs": 1},
    {"prompt": [5, 6, 7]},
    {"prompt": [[5, 6], [7]], "echo": True},
    {"stop": ["e", "a"]},
    {"suffix": None, "best_of": 1},
    {"return_token_ids": True},
]


class SchemaTest(unittest.TestCase):
    def post(self, path, body):
        status, _, text = request("POST", path, {"model": MODEL, **body})
        self.assertEqual(status, 200, f"{body}: {text}")
        return text

    def check_stream(self, path, body, schema):
        """Checks framing and schemas; returns the chunks."""
        status, headers, text = request("POST", path, {"model": MODEL, **body, "stream": True})
        self.assertEqual(status, 200, f"{body}: {text}")
        self.assertTrue(headers["Content-Type"].startswith("text/event-stream"))
        events = parse_events(text)
        self.assertEqual(events[-1], "[DONE]")
        chunks = [json.loads(event) for event in events[:-1]]
        for chunk in chunks:
            SCHEMA.check(schema, chunk)
        finishes = [choice["index"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
        self.assertEqual(len(finishes), len(set(finishes)), "one finish for each choice")
        self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)
        return chunks

    def test_chat(self):
        for variant in CHAT_VARIANTS:
            with self.subTest(variant=variant):
                whole = json.loads(self.post("/v1/chat/completions", {**CHAT, **variant}))
                SCHEMA.check("CreateChatCompletionResponse", whole)
                chunks = self.check_stream("/v1/chat/completions", {**CHAT, **variant},
                                           "CreateChatCompletionStreamResponse")
                for choice in whole["choices"]:
                    own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
                    self.assertEqual(own[0]["delta"], {"role": "assistant", "content": ""})
                    text = "".join(c["delta"].get("content") or "" for c in own)
                    self.assertEqual(text, choice["message"]["content"])
                    self.assertEqual(own[-1]["finish_reason"], choice["finish_reason"])
                    if choice["logprobs"]:
                        tokens = [t for c in own if c["logprobs"] for t in c["logprobs"]["content"]]
                        self.assertEqual(tokens, choice["logprobs"]["content"])

    def test_completions(self):
        for variant in TEXT_VARIANTS:
            with self.subTest(variant=variant):
                whole = json.loads(self.post("/v1/completions", {**TEXT, **variant}))
                SCHEMA.check("CreateCompletionResponse", whole)
                chunks = self.check_stream("/v1/completions", {**TEXT, **variant}, "CompletionChunk")
                for choice in whole["choices"]:
                    own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
                    self.assertEqual("".join(c["text"] for c in own), choice["text"])
                    if choice["logprobs"]:
                        for key in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
                            streamed = [x for c in own if c["logprobs"] for x in c["logprobs"][key]]
                            self.assertEqual(streamed, choice["logprobs"][key], key)

    def test_usage(self):
        for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)):
            schema = "CreateChatCompletionStreamResponse" if "chat" in path else "CompletionChunk"
            for continuous in (False, True):
                options = {"include_usage": True, "continuous_usage_stats": continuous}
                chunks = self.check_stream(path, {**body, "n": 2, "stream_options": options}, schema)
                self.assertEqual(chunks[-1]["choices"], [])
                whole = json.loads(self.post(path, {**body, "n": 2}))
                for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
                    self.assertEqual(chunks[-1]["usage"][key], whole["usage"][key])
                for chunk in chunks[:-1]:
                    self.assertEqual(chunk["usage"] is not None, continuous)

    def test_models(self):
        status, _, text = request("GET", "/v1/models")
        self.assertEqual(status, 200)
        models = json.loads(text)
        SCHEMA.check("ListModelsResponse", models)
        for model in models["data"]:
            status, _, text = request("GET", "/v1/models/" + urllib.parse.quote(model["id"], safe=""))
            self.assertEqual(status, 200)
            SCHEMA.check("Model", json.loads(text))

    def check_error(self, expected_status, method, path, body, headers=None, param=None):
        status, answer_headers, text = request(method, path, body, headers)
        self.assertEqual(status, expected_status, f"{method} {path} {str(body)[:100]}: {text[:300]}")
        self.assertEqual(answer_headers["Content-Type"], "application/json")
        error = json.loads(text)
        SCHEMA.check("ErrorResponse", error)
        if param:
            self.assertEqual(error["error"]["param"], param)

    def test_errors(self):
        chat, text = "/v1/chat/completions", "/v1/completions"
        for path, base in ((chat, CHAT), (text, TEXT)):
            self.check_error(404, "POST", path, {**base, "model": "no-such-model"}, param="model")
            for body in ("", "{", "[]", "null", '{"prompt": NaN}', b"\xff\xfe"):
                self.check_error(400, "POST", path, body)
            self.check_error(415, "POST", path, json.dumps(base), {"Content-Type": "text/plain"})
            self.check_error(405, "GET", path, None)
            for field, values in {
                "temperature": [-1, "hot", 1e300, True, []],
                "n": [0, -1, 129, 2**31, 2**63, 1.5, "1"],
                "max_tokens": [-1, 2**31, 2**63, 2**64, "8", 10**9],
                "top_k": [-2, 2**31, 0.5], "top_p": [-1, 2], "min_p": [-1, 2],
                "seed": [2**63, "1", 0.5], "stop": ["", [""], 5, [5]],
                "logit_bias": [{"999999999": 1}, {"x": 1}, {"1": 101}, {"1": "x"}, [1]],
                "stop_token_ids": [[-1], [2**31], ["x"], 5],
                "stream": ["yes", 2], "stream_options": [{"include_usage": True}],
                "prompt_logprobs": [-2, 2**31, 1.5], "response_format": [{"type": "json_object"}],
                "guided_json": [{}], "priority": [1], "use_beam_search": ["yes"],
                "best_of": [-1, 21, 10**6], "length_penalty": [2, "1"], "early_stopping": [True, "x"],
            }.items():
                for value in values:
                    with self.subTest(path=path, field=field, value=value):
                        self.check_error(400, "POST", path, {**base, field: value})
        self.check_error(400, "POST", chat, {"messages": []}, param="messages")
        self.check_error(400, "POST", chat, {"messages": [{"role": "x", "content": "y"}]}, param="messages[0].role")
        self.check_error(400, "POST", chat, {**CHAT, "top_logprobs": 3}, param="top_logprobs")
        self.check_error(400, "POST", chat, {**CHAT, "tool_choice": "required"}, param="tool_choice")
        self.check_error(400, "POST", chat, {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}]}]},
            param="messages[0].content[0].type")
        for prompt in ("", [], [""], [[]], [-1], [2**31 - 1], [2**40], ["a", 1], 5, {}, None):
            with self.subTest(prompt=prompt):
                self.check_error(400, "POST", text, {**TEXT, "prompt": prompt})
        self.check_error(404, "GET", "/v1/nothing", None)
        self.check_error(404, "GET", "/v1/models/no-such-model", None, param="model")
        # The next request works.
        self.post(text, TEXT)

    def test_every_optional_field_may_be_null(self):
        fields = ["temperature", "top_p", "top_k", "n", "max_tokens", "stop", "stream", "stream_options", "logit_bias",
                  "seed", "user", "presence_penalty", "frequency_penalty", "logprobs"]
        for path, base in (("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)):
            keep = {key: value for key, value in base.items() if key in ("messages", "prompt")}
            nulls = dict(zip(fields, itertools.repeat(None)))
            self.post(path, {**nulls, **keep, "max_tokens": 4})


def main():
    global SCHEMA, BASE, MODEL
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if not os.path.exists(sys.argv[1]):
        print(f"skipped: {sys.argv[1]} is not there")
        sys.exit(77)
    SCHEMA = OpenAiSchema(sys.argv[1])
    BASE = urllib.parse.urlparse(sys.argv[2])
    MODEL = json.loads(request("GET", "/v1/models")[2])["data"][0]["id"]
    unittest.main(argv=sys.argv[:1], verbosity=1)


if __name__ == "__main__":
    main()
