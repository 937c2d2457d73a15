#!/usr/bin/env python3
"""Starts a server that prints its URL, runs a command with that URL as its last argument, and ends the server.

usage: with_server.py SERVER [ARGUMENT…] -- COMMAND [ARGUMENT…]

The exit status is the command's, or 1 when the server did not start, or did not end well after SIGTERM.
"""
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

START_SECONDS = 120
STOP_SECONDS = 40


def find_url(server):
    """Reads the server's output up to its URL, and goes on reading beside us so that its pipe never fills."""
    found = []
    seen = threading.Event()

    def read():
        for line in server.stdout:
            match = re.search(r"https?://[^\s/'\"]+:\d+", line)
            if match and not found:
                found.append(match.group(0))
                seen.set()
        seen.set()

    threading.Thread(target=read, daemon=True).start()
    seen.wait(START_SECONDS)
    return found[0] if found else None


def is_healthy(url):
    try:
        with urllib.request.urlopen(url + "/health", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def main():
    arguments = sys.argv[1:]
    if "--" not in arguments:
        sys.exit(__doc__)
    split = arguments.index("--")
    server = subprocess.Popen(arguments[:split], stdout=subprocess.PIPE, text=True)
    try:
        url = find_url(server)
        deadline = time.monotonic() + START_SECONDS
        while url and not is_healthy(url) and server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if not url or not is_healthy(url):
            print("the server did not start")
            return 1
        status = subprocess.run(arguments[split + 1:] + [url], check=False).returncode
        server.send_signal(signal.SIGTERM)
        ended = server.wait(timeout=STOP_SECONDS)
        if ended != 0:
            print(f"the server ended with status {ended}")
            return 1
        return status
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


if __name__ == "__main__":
    sys.exit(main())
