#!/usr/bin/env python3
"""A hostile user against `quire serve` with the demo model (security.md 1 to 4, 9 and 10): after each attack there was a
clear error, both processes are the same as before, the next request works, and nothing is held or leaked.

usage: hostile_test.py PROGRAM [unittest arguments]
"""
import contextlib
import json
import os
import random
import resource
import socket
import struct
import sys
import threading
import time
import unittest

from serving import SANITIZED, Server, wait_for

PROGRAM = None  # set by main
HUGE = 1 << 20
NOT_A_NUMBER = ['"1"', "true", "[]", "{}", "1e309", "-1e309"]
NOT_AN_INTEGER = NOT_A_NUMBER + ["0.5", "9223372036854775808", "-9223372036854775809", "1e30"]
NOT_A_STRING = ["1", "true", "[]", "{}"]
NOT_A_BOOL = ["1", '"true"', "[]", "{}"]

# Field: texts of JSON values that both generating routes must refuse under its name.
BAD_VALUES = {
    "model": [*NOT_A_STRING, '"' + "m" * 1000 + '"'],
    "temperature": [*NOT_A_NUMBER, "-0.001", "101"],
    "top_p": [*NOT_A_NUMBER, "-0.1", "1.1"],
    "min_p": [*NOT_A_NUMBER, "-0.1", "1.1"],
    "top_k": [*NOT_AN_INTEGER, "-2", "2147483648"],
    "repetition_penalty": [*NOT_A_NUMBER, "0", "-1", "101"],
    "presence_penalty": [*NOT_A_NUMBER, "-2.1", "2.1"],
    "frequency_penalty": [*NOT_A_NUMBER, "-2.1", "2.1"],
    "seed": NOT_AN_INTEGER,
    "n": [*NOT_AN_INTEGER, "0", "-1", "129", "2147483647", "2147483648"],
    "max_tokens": [*NOT_AN_INTEGER, "-1", "0", "2147483648", "1000000"],
    "min_tokens": [*NOT_AN_INTEGER, "-1", "2147483648"],
    "stop": ["1", "true", "{}", '""', '[""]', "[1]", "[[]]", '["a", null]', json.dumps(["x"] * 17),
             json.dumps("x" * 1025)],
    "stop_token_ids": ["1", '"1"', "{}", '["1"]', "[-1]", "[0.5]", "[999999]", "[2147483648]", "[[0]]",
                       json.dumps([1] * 257)],
    "logit_bias": ["1", '"1"', "[]", '{"1": "1"}', '{"1": 101}', '{"1": -101}', '{"1": 1e309}', '{"1": []}',
                   '{"-1": 1}', '{"999999": 1}', '{"a": 1}', '{"": 1}', '{"1.0": 1}', '{" 1": 1}', '{"2147483648": 1}',
                   '{"' + "0" * HUGE + '1": 1000}', '{"' + "9" * HUGE + '": 1}', '{"01": 1}',
                   json.dumps({str(i): 1 for i in range(4097)})],
    "prompt_logprobs": [*NOT_AN_INTEGER, "-1", "21", "2147483648"],
    "truncate_prompt_tokens": [*NOT_AN_INTEGER, "0", "-2"],
    "stream": NOT_A_BOOL,
    "stream_options": ["1", "[]", "true", '{"include_usage": 1}', "{}"],
    "ignore_eos": NOT_A_BOOL,
    "skip_special_tokens": NOT_A_BOOL,
    "add_special_tokens": NOT_A_BOOL,
    "include_stop_str_in_output": NOT_A_BOOL,
    "return_token_ids": NOT_A_BOOL,
    "echo": NOT_A_BOOL,
    "cache_salt": [*NOT_A_STRING, '""', '"../x"', json.dumps("x" * 129)],
    "prompt_cache_key": [*NOT_A_STRING, json.dumps("x" * 513)],
    "prompt_cache_retention": [*NOT_A_STRING, '"48h"', '"24H"'],
    "response_format": ['{"type": "json_object"}', "1", "[]"],
    "guided_regex": ['"(a+)+$"'],
    "best_of": [*NOT_AN_INTEGER, "-1", "21", "129", "1000000", "2147483648"],
    "use_beam_search": NOT_A_BOOL,
    "length_penalty": [*NOT_A_NUMBER, "-10.1", "11", "2"],  # the last, because there are no beams
    "early_stopping": ["1", '"x"', "[]", "true", '"never"'],
    "logits_processors": ['["os.system"]'],
}
BAD_COMPLETION_VALUES = {
    "prompt": ["null", "1", "true", "{}", '""', "[]", '[""]', "[[]]", "[null]", "[1.5]", "[-1]", "[999999]",
               "[2147483648]", "[9223372036854775808]", "[1e309]", "[true]", '["a", 1]', '[1, "a"]', "[[1], [-1]]",
               "[[[1]]]", "[[999999]]", json.dumps(["x"] * 257), json.dumps([1] * 100_000), json.dumps("word " * 50_000)],
    "logprobs": [*NOT_AN_INTEGER, "-1", "21"],
    "suffix": ['"x"'],
}
BAD_CHAT_VALUES = {
    "messages": ["null", "1", '"x"', "{}", "[]", "[1]", "[null]", "[[]]", "[{}]", '[{"role": 1, "content": "x"}]',
                 '[{"role": "user"}]', '[{"role": "user", "content": 1}]', '[{"role": "user", "content": {}}]',
                 '[{"role": "user", "content": [1]}]', '[{"role": "user", "content": [{"type": "text"}]}]',
                 '[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]',
                 '[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]',
                 '[{"role": "", "content": "x"}]', json.dumps([{"role": "user", "content": "x"}] * 4097)],
    "tools": ["1", '"x"', "{}", "[1]", "[{}]", '[{"type": "function"}]'],
    "tool_choice": ["1", '"required"', '"x"'],
    "chat_template_kwargs": ["1", "[]", '{"messages": []}', '{"bos_token": "x"}', '{"add_generation_prompt": true}'],
    "chat_template": ['"{% for i in range(1000000000) %}x{% endfor %}"'],
    "logprobs": NOT_A_BOOL,
    "top_logprobs": [*NOT_AN_INTEGER, "-1", "21"],
    "max_completion_tokens": [*NOT_AN_INTEGER, "-1", "0", "2147483648"],
    "reasoning_effort": ["1", '"enormous"'],
    "documents": ["1", "[1]"],
}
ROUTES = {
    "/v1/completions": ({"model": '"demo"', "prompt": '"Hello"', "max_tokens": "1"}, BAD_COMPLETION_VALUES),
    "/v1/chat/completions": ({"model": '"demo"', "messages": '[{"role": "user", "content": "Hello"}]',
                              "max_tokens": "1"}, BAD_CHAT_VALUES),
}


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def num_descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class HostileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM, "--header-timeout", "1s", "--body-timeout", "1s", "--write-timeout", "2s")
        cls.addClassCleanup(cls.server.close)
        cls.engine = cls.server.engine_pid()
        cls.processes = {"server": cls.server.process.pid, "engine": cls.engine}
        for _ in range(20):
            cls.server.chat("Hello!", max_tokens=2)  # whatever is allocated once
        cls.descriptors = {name: num_descriptors(pid) for name, pid in cls.processes.items()}
        cls.resident = {name: resident_bytes(pid) for name, pid in cls.processes.items()}

    # What holds after every attack.
    def tearDown(self):
        server = self.server
        self.assertIsNone(server.process.poll(), server.stderr())
        self.assertEqual(server.engine_pid(), self.engine, server.stderr())
        status, answer = server.chat("Hello!", max_tokens=2)
        self.assertEqual(status, 200, answer)
        wait_for("the end of all requests", lambda: server.metric("vllm:num_requests_running") == 0, seconds=20)
        self.assertEqual(server.metric("vllm:num_requests_waiting"), 0)
        wait_for("free KV blocks", lambda: server.metric("vllm:kv_cache_usage_perc") == 0, seconds=5)
        for name, pid in self.processes.items():
            wait_for(f"the {name} to close its descriptors", lambda: num_descriptors(pid) <= self.descriptors[name],
                     seconds=20)
            # The largest attack sends 100 MB, of which 16 may be kept for a while; the allocator keeps some more.
            if not SANITIZED:
                self.assertLess(resident_bytes(pid), self.resident[name] + (192 << 20), name)

    # --- tools

    def open(self, receive_buffer=None):
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(60)
        connection.connect(("127.0.0.1", self.server.port))
        return connection

    def send(self, data, half_close=False):
        """All that comes back until the server closes."""
        with contextlib.closing(self.open()) as connection:
            answer = b""
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(1 << 16):
                    answer += part
            return answer

    @staticmethod
    def head(target="/v1/completions", method="POST", fields=(), version="1.1"):
        lines = [f"{method} {target} HTTP/{version}", "Host: localhost", "Content-Type: application/json", *fields]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def post(self, body, target="/v1/completions"):
        return self.send(self.head(target, fields=(f"Content-Length: {len(body)}", "Connection: close")) + body)

    def assert_error(self, answer, status, param=None):
        """An answer with an error object of the API in it; `param` is the field or a part of it."""
        head, _, body = answer.partition(b"\r\n\r\n")
        self.assertRegex(head.split(b"\r\n")[0].decode(), rf"^HTTP/1.1 {status}\b", answer[:2000])
        self.assertLess(len(answer), 4096, "an error repeats what the client sent")
        error = json.loads(body)["error"]
        self.assertTrue(error["message"])
        self.assertIn("type", error)
        self.assertEqual(error["code"], int(head.split(b" ")[1]) if isinstance(error["code"], int) else error["code"])
        if param is not None:
            self.assertRegex(error["param"] or "", rf"^{param}(\b|$)", error)
        return error

    # --- bodies

    def test_wrong_values_of_every_field_are_refused_by_name(self):
        for route, (fields, own) in ROUTES.items():
            for field, values in {**BAD_VALUES, **own}.items():
                for value in values:
                    with self.subTest(route=route, field=field, value=value[:80]):
                        body = ", ".join(f'"{key}": {text}' for key, text in {**fields, field: value}.items())
                        answer = self.post(b"{%s}" % body.encode(), route)
                        unknown_model = field == "model" and value.startswith('"')
                        self.assert_error(answer, "400|404" if unknown_model else 400, param=field)

    def test_bodies_that_are_not_json(self):
        bodies = [b"", b" ", b"null", b"1", b'"x"', b"[]", b"{", b"{}}", b'{"prompt"}', b"{'prompt': 'x'}",
                  b'{"prompt": NaN}', b'{"prompt": Infinity}', b'{"prompt": "\xff\xfe"}', b'{"prompt": "\xc3"}',
                  b'{"prompt": "\xed\xa0\x80"}', b'{"prompt": "\\ud800\\u0041"}', b'{"pro\xffmpt": "x"}', b"\x00" * 100,
                  b'{"prompt": "a\x00b"}', b"\xef\xbb\xbf{}", b"[" * 100_000, b'{"a":' * 100_000, b"[" * 65 + b"]" * 65,
                  b'{"prompt": "x", "max_tokens": 1e9999999999999999999}', b'{"prompt": "x", "max_tokens": -}',
                  b'{"prompt": "x", "metadata": ' + b'{"a":' * 100 + b"1" + b"}" * 100 + b"}"]
        for body in bodies:
            for route in (*ROUTES, "/tokenize", "/detokenize"):
                with self.subTest(body=body[:60], route=route):
                    self.assert_error(self.post(body, route), 400)

    def test_a_key_that_stands_twice_counts_once(self):
        answer = self.post(b'{"prompt": [], "prompt": "Hello", "max_tokens": 0, "max_tokens": 1}')
        self.assertIn(b"200 OK", answer)
        self.assert_error(self.post(b'{"prompt": "Hello", "max_tokens": 1, "max_tokens": -1}'), 400, "max_tokens")

    def test_wrong_values_of_the_small_routes(self):
        for body in ("{}", '{"prompt": 1}', '{"prompt": "x", "add_special_tokens": 1}', '{"prompt": ["x"]}'):
            self.assert_error(self.post(body.encode(), "/tokenize"), 400)
        for tokens in ("1", '"x"', "[-1]", "[999999]", "[2147483648]", "[1.5]", '["1"]', "[[1]]", "{}", "null"):
            self.assert_error(self.post(b'{"tokens": %s}' % tokens.encode(), "/detokenize"), 400, "tokens")

    def test_many_unknown_fields_and_long_names(self):
        names = {f"field_{i}": i for i in range(200_000)}
        answer = self.post(json.dumps({"prompt": "Hello", "max_tokens": 1, **names, "x" * HUGE: 1}).encode())
        self.assertIn(b"200 OK", answer[:100])

    def test_the_most_that_is_allowed(self):
        status, answer = self.server.chat("Hello!", n=128, max_tokens=3, stop=[str(i) * 8 for i in range(16)],
                                          logit_bias={str(i): 0.5 for i in range(1000)}, logprobs=True, top_logprobs=20,
                                          temperature=100, repetition_penalty=100)
        self.assertEqual(status, 200, answer)
        self.assertEqual(len(answer["choices"]), 128)

    # Values so extreme that arithmetic overflows: an answer all the same, and valid JSON.
    def test_extreme_values_that_are_allowed(self):
        for fields in ({"temperature": 1e-300}, {"temperature": 5e-324}, {"temperature": 100, "top_p": 5e-324},
                       {"top_p": 0}, {"min_p": 1}, {"top_k": 2147483647}, {"repetition_penalty": 0.001},
                       {"seed": -9223372036854775808}, {"seed": 9223372036854775807},
                       {"logit_bias": {str(i): -100 for i in range(1024)}, "logprobs": 20}):
            body = {"model": "demo", "prompt": "Hello", "max_tokens": 8, "ignore_eos": True, **fields}
            status, answer = self.server.request("POST", "/v1/completions", body)
            self.assertEqual(status, 200, (fields, answer))
            json.loads(answer, parse_constant=lambda text: self.fail(f"{text} in the answer to {fields}"))

    def test_100_mb_bodies(self):
        size = 100 << 20
        announced = self.head(fields=(f"Content-Length: {size}",))
        self.assert_error(self.send(announced + b"x" * (1 << 16)), 413)
        chunk = b"10000\r\n" + b"x" * (1 << 16) + b"\r\n"
        self.assert_error(self.send(self.head(fields=("Transfer-Encoding: chunked",)) + chunk * (size >> 16)), 413)
        for length in (1 << 63, (1 << 64) - 1):
            self.assert_error(self.send(self.head(fields=(f"Content-Length: {length}",))), 413)

    # --- HTTP

    def test_heads_that_are_too_large(self):
        self.assert_error(self.send(self.head("/v1/models?" + "x" * 100_000, "GET")), 431)
        self.assert_error(self.send(self.head("/v1/models", "GET", ("X-A: " + "x" * 100_000,))), 431)
        self.assert_error(self.send(self.head("/v1/models", "GET", [f"X-{i}: 1" for i in range(150)])), 431)
        # What stands around the chunks of a body is no body, and has no end of its own.
        chunked = self.head(fields=("Transfer-Encoding: chunked",))
        self.assert_error(self.send(chunked + b"1;" + b"x" * (100 << 20)), 431)
        self.assert_error(self.send(chunked + b"1\r\n{\r\n0\r\n" + b"X-A: 1\r\n" * (10 << 20)), 431)
        self.assert_error(self.send(b"G" * 100_000), 431)

    def test_heads_that_are_wrong(self):
        close = "Connection: close"
        for data, status in ((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 400),  # TLS
                             (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505), (b"GET / HTTP/9.9\r\n\r\n", 505),
                             (b"GET /\r\n\r\n", 400), (b"GET  / HTTP/1.1\r\n\r\n", 400), (b"\r\n\r\n\r\n\r\nX\r\n\r\n", 400),
                             (b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Name: x\r\n\r\n", 400),
                             (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", 400),
                             (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400),  # no Host
                             (self.head("/v1/models", "GET", ("Host: evil.example",)), 400),  # a second one
                             (b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 403),
                             (self.head("/v1/models", "GET", ("Origin: https://evil.example", close)), 403),
                             (self.head("http://evil.example/v1/models", "GET", (close,)), 404),
                             (self.head("/v1/models/../../etc/passwd", "GET", (close,)), 404),
                             (self.head("/v1/models/%2e%2e%2f%00%ff", "GET", (close,)), 404),
                             (self.head("/" + "a/" * 5000, "GET", (close,)), 404),
                             (self.head("/nowhere", "GET", (close,)), 404),
                             (self.head("/v1/completions", "GET", (close,)), 405),
                             (self.head("/v1/models", "DELETE", (close,)), 405),
                             (self.head("/v1/models", "BREW", (close,)), 405),
                             (self.head("/v1/completions", "TRACE", (close,)), 405)):
            with self.subTest(data=data[:60]):
                self.assert_error(self.send(data), status)

    def test_head_and_options(self):
        for target in ("/health", "/v1/models", "/metrics", "/"):
            head, _, body = self.send(self.head(target, "HEAD", ("Connection: close",))).partition(b"\r\n\r\n")
            self.assertIn(b"HTTP/1.1 200", head)
            self.assertEqual(body, b"")
        answer = self.send(self.head("/v1/completions", "OPTIONS", ("Connection: close",)))
        self.assertIn(b"HTTP/1.1 204", answer)
        self.assertNotIn(b"Access-Control", answer)

    def test_lengths_and_codings_that_are_wrong(self):
        body = b'{"prompt": "x"}'
        for fields in (["Content-Length: -1"], ["Content-Length: abc"], ["Content-Length: 1, 2"], ["Content-Length: +1"],
                       ["Content-Length: 0x10"], ["Content-Length: 99999999999999999999999999"],
                       ["Content-Length: 15", "Content-Length: 16"],
                       ["Content-Length: 15", "Transfer-Encoding: chunked"],
                       ["Transfer-Encoding: chunked", "Content-Length: 15"],
                       ["Transfer-Encoding: chunked, chunked"], ["Transfer-Encoding: gzip"],
                       ["Transfer-Encoding: chunked, gzip"]):
            with self.subTest(fields=fields):
                self.assert_error(self.send(self.head(fields=fields) + body), "400|411|413|501")
        for chunks in (b"zz\r\n", b"-1\r\nx\r\n", b"5\r\nabcdefgh\r\n0\r\n\r\n", b"ffffffffffffffffff\r\nx",
                       b"\r\n\r\n", b"1;" + b"x" * 100_000 + b"\r\na\r\n0\r\n\r\n"):
            with self.subTest(chunks=chunks[:40]):
                answer = self.send(self.head(fields=("Transfer-Encoding: chunked", "Connection: close")) + chunks)
                self.assert_error(answer, "400|413|431")
        # A length that is too large for what comes, and a length of nothing where something is needed.
        self.assertEqual(self.send(self.head(fields=("Content-Length: 100",)) + body), b"")  # the time is up
        self.assert_error(self.send(self.head(fields=("Connection: close",))), 400)

    def test_expect_continue(self):
        body = b'{"prompt": "Hello", "max_tokens": 1}'
        with contextlib.closing(self.open()) as connection:
            connection.sendall(self.head(fields=(f"Content-Length: {len(body)}", "Expect: 100-continue",
                                                 "Connection: close")))
            self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 100 Continue\r\n\r\n"))
            connection.sendall(body)
            self.assertIn(b"200 OK", connection.recv(1000))
        # What will be refused is refused at once.
        answer = self.send(self.head(fields=(f"Content-Length: {100 << 20}", "Expect: 100-continue")))
        self.assert_error(answer, 413)
        self.assert_error(self.send(self.head("/no", fields=("Content-Length: 10", "Expect: 100-continue"))), 404)

    def test_pipelined_requests_are_answered_in_order(self):
        body = b'{"prompt": "Hello", "max_tokens": 2}'
        one = self.head(fields=(f"Content-Length: {len(body)}",)) + body
        last = self.head("/nowhere", "GET", ("Connection: close",))
        answer = self.send(one * 20 + self.head("/health", "GET") + one + last)
        statuses = [part.split(b" ", 1)[0] for part in answer.split(b"HTTP/1.1 ")[1:]]
        self.assertEqual(statuses, [b"200"] * 22 + [b"404"])

    def test_slow_senders_are_cut_off(self):
        for data in (b"P", b"POST /v1/completions HTTP/1.1\r\n", self.head(fields=("Content-Length: 1000",)),
                     self.head(fields=("Transfer-Encoding: chunked",)) + b"5\r\nabc"):
            with self.subTest(data=data), contextlib.closing(self.open()) as connection:
                connection.sendall(data)
                start = time.monotonic()
                # A byte now and then does not help.
                with contextlib.suppress(ConnectionError):
                    while time.monotonic() - start < 20:
                        connection.settimeout(0.2)
                        with contextlib.suppress(TimeoutError):
                            if not connection.recv(1000):
                                break
                        connection.sendall(b"x" if data.count(b"\r\n\r\n") else b"a")
                self.assertLess(time.monotonic() - start, 10)

    def test_silent_connections_do_not_keep_others_out(self):
        with contextlib.ExitStack() as stack:
            for _ in range(300):
                stack.enter_context(contextlib.closing(self.open()))
            self.assertEqual(self.server.health(), 200)

    # security.md 24: connections wait for the descriptors of others.
    @unittest.skipIf(SANITIZED, "the sanitizers need a descriptor when there is none")
    def test_more_connections_than_descriptors(self):
        with Server(PROGRAM) as server:
            pid = server.process.pid
            limit = num_descriptors(pid) + 8
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
            with contextlib.ExitStack() as stack:
                for _ in range(50):
                    connection = stack.enter_context(contextlib.closing(socket.socket()))
                    connection.connect(("127.0.0.1", server.port))
                wait_for("the warning", lambda: "cannot accept a connection" in server.stderr())
            self.assertEqual(server.health(), 200)
            self.assertEqual(server.chat("Hello!", max_tokens=2)[0], 200)
            self.assertEqual(server.stderr().count("cannot accept a connection"), 1)

    # A client that closes its sending side has gone, as far as the other side can tell.
    def test_half_closed_connections_end(self):
        body = b'{"prompt": "Hello", "max_tokens": 1900, "ignore_eos": true}'
        start = time.monotonic()
        self.send(self.head(fields=(f"Content-Length: {len(body)}",)) + body, half_close=True)
        self.send(self.head(fields=("Content-Length: 100",)) + body, half_close=True)
        self.send(b"GET /health HTTP/1.1\r\nHo", half_close=True)
        self.assertLess(time.monotonic() - start, 30)

    def test_a_reset_in_the_middle_of_a_stream(self):
        for _ in range(10):
            connection, response = self.server.stream()
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sock.close()
            response.close()
            connection.close()

    def test_a_reader_that_never_reads(self):
        body = json.dumps({"prompt": "Hello", "max_tokens": 1900, "ignore_eos": True, "stream": True, "n": 8,
                           "logprobs": 20}).encode()
        with contextlib.closing(self.open(receive_buffer=4096)) as connection:
            connection.sendall(self.head(fields=(f"Content-Length: {len(body)}",)) + body)
            wait_for("its request to run", lambda: self.server.metric("vllm:num_requests_running") > 0, seconds=20)
            wait_for("its request to be aborted", lambda: self.server.metric("vllm:num_requests_running") == 0)

    # A choice that a stop string ends in the front end is aborted in the engine, though the other one goes on.
    def test_choices_that_a_stop_string_ends_are_not_computed_on(self):
        before = self.server.metric("vllm:generation_tokens_total")
        body = {"model": "demo", "prompt": "I would like to book a hotel", "n": 32, "temperature": 2, "seed": 1,
                "max_tokens": 1500, "ignore_eos": True, "stop": ["a", "e"]}
        status, answer = self.server.request("POST", "/v1/completions", body)
        self.assertEqual(status, 200, answer)
        self.assertLess(self.server.metric("vllm:generation_tokens_total") - before, 32 * 1500 / 4)

    def test_200_clients_that_come_and_go(self):
        chance = random.Random(20240611)
        print("seed 20240611", file=sys.stderr)
        plans = [(chance.random(), chance.choice([1, 50, 1900]), chance.random() < 0.5) for _ in range(200)]
        statuses = []

        def client(plan):
            patience, max_tokens, stream = plan
            body = json.dumps({"prompt": f"Client {patience}", "max_tokens": max_tokens, "ignore_eos": True,
                               "stream": stream}).encode()
            with contextlib.suppress(TimeoutError, ConnectionError), contextlib.closing(self.open()) as connection:
                connection.sendall(self.head(fields=(f"Content-Length: {len(body)}", "Connection: close")) + body)
                connection.settimeout(2 * patience if max_tokens > 1 else 60)
                answer = b""
                while part := connection.recv(1 << 16):
                    answer += part
                statuses.append(answer.split(b" ")[1])

        threads = [threading.Thread(target=client, args=(plan,)) for plan in plans]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertLessEqual(set(statuses), {b"200", b"503"})
        self.assertIn(b"200", statuses)

    # MEM-01: what requests leave behind does not add up.
    @unittest.skipIf(SANITIZED, "the sanitizers keep freed memory")
    def test_memory_does_not_grow_with_requests(self):
        def private_kib(pid):
            with open(f"/proc/{pid}/status") as file:
                fields = dict(line.split(":", 1) for line in file)
            return int(fields["RssAnon"].split()[0]) + int(fields["VmSwap"].split()[0])

        def ask(prompt):
            return self.server.request("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1})[0]

        for i in range(40):  # the prefix cache is full after these
            self.assertEqual(ask([(i * 31 + j * 7) % 4000 for j in range(1500)]), 200)
        for i in range(200):
            self.assertEqual(ask(f"Request {i}"), 200)
        before = {name: private_kib(pid) for name, pid in self.processes.items()}
        for i in range(1000):
            self.assertEqual(ask(f"Request {i % 2 * i}"), 200)  # every other one is new
        for name, pid in self.processes.items():
            self.assertLess(private_kib(pid) - before[name], 1000, name)

    def test_nothing_that_was_sent_is_in_the_log(self):
        secret = "a-secret-that-nobody-may-log"
        self.server.chat(secret, max_tokens=1)
        self.post(json.dumps({"prompt": [secret], "max_tokens": secret}).encode())
        self.server.request("GET", "/v1/models", headers={"Authorization": f"Bearer {secret}"})
        self.assertNotIn(secret, self.server.stdout() + self.server.stderr())


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
