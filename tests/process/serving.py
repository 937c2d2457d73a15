"""Starts `quire serve` as a user does, and talks to it. Standard library only."""
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time

# The program is built with sanitizers (CMake says so): freed memory is kept for a while, addresses are reserved by the
# terabyte, and a check of theirs opens a pipe. What a test says of memory and of descriptors does not hold then.
SANITIZED = bool(os.environ.get("QUIRE_SANITIZE"))
DEADLINE_SECONDS = 60  # no wait is longer, unless the test has failed already


def wait_for(what, condition, seconds=DEADLINE_SECONDS):
    """Polls until `condition` gives something true, and returns that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what} did not happen within {seconds} s")


def process_is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Server:
    """A `quire serve` on a free port."""

    def __init__(self, program, *flags, threads=1, environment=None, wait_until_ready=True):
        command = [program, "serve", "--port", "0", "--threads", str(threads), "--kv-memory", "64MiB", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})
        self.lines = []
        self.errors = []
        self.readers = [threading.Thread(target=self._read, args=(stream, lines), daemon=True)
                        for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))]
        for reader in self.readers:
            reader.start()
        try:
            self.port = int(wait_for("the line with the address", self._find_port))
            if wait_until_ready:
                self.wait_until_ready()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _read(stream, lines):
        for line in stream:
            lines.append(line)

    def _find_port(self):
        assert self.process.poll() is None, f"the server ended with {self.process.returncode}: {self.stderr()}"
        match = re.search(r"listening on http://127\.0\.0\.1:(\d+)", self.stdout())
        return match and match.group(1)

    def stdout(self):
        return "".join(self.lines)

    def stderr(self):
        return "".join(self.errors)

    def wait_until_ready(self):
        wait_for("health", lambda: self.health() == 200)

    def wait_for_new_engine(self, old_pid):
        wait_for("a new engine", lambda: self.engine_pid() != old_pid)
        # Health may be some milliseconds behind: only after the engine's own word it tells of the new one.
        restarts = len(re.findall(r"engine process \d+ started", self.stderr())) - 1
        wait_for("its readiness", lambda: self.stderr().count("the engine is ready again") >= restarts)
        self.wait_until_ready()

    def engine_pid(self):
        """The newest engine process that the server has announced."""
        pids = re.findall(r"engine process (\d+) started", self.stderr())
        return int(pids[-1]) if pids else None

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)

    def request(self, method, path, body=None, headers=None):
        """Status and body of one request."""
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body=None if body is None else json.dumps(body),
                               headers={"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read().decode()

    def health(self):
        return self.request("GET", "/health")[0]

    def chat(self, text, **fields):
        status, body = self.request("POST", "/v1/chat/completions",
                                    {"model": "demo", "messages": [{"role": "user", "content": text}], **fields})
        return status, json.loads(body)

    def stream(self, **fields):
        """Begins a long completion and returns its connection and response after the first chunk came."""
        connection = self.connect()
        body = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": True, "stream": True,
                "temperature": 0, **fields}
        connection.request("POST", "/v1/completions", body=json.dumps(body),
                           headers={"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.readline().startswith(b"data: ")
        return connection, response

    def metric(self, name):
        """The value of a gauge or counter without regard to its labels."""
        match = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? ([0-9.e+-]+)$", self.request("GET", "/metrics")[1], re.M)
        assert match, f"no metric {name}"
        return float(match.group(1))

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds=DEADLINE_SECONDS):
        """The exit status."""
        return self.process.wait(seconds)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self.readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
