#!/usr/bin/env python3
"""TMPL-04: renders real chat templates with quire and with jinja2 and compares the results byte for byte.

usage: check_templates.py RENDER_PROGRAM [--npm] [--second-opinion] TEMPLATE_FILE_OR_FOLDER…

--npm adds the templates of the npm package @huggingface/ollama-utils; --second-opinion also renders with the npm
package @huggingface/jinja, and says how often it agrees with jinja2 (it does not always, and decides nothing).

A conversation that a template cannot render must fail in both; a template's own raise_exception must give the same
message. Prints every difference (the first few of each template) and a summary; exits 1 when there is one, 77 when
there is nothing to compare with.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

SKIPPED = 77
HERE = pathlib.Path(__file__).parent

try:
    import jinja2  # noqa: F401
except ImportError:
    print("skipped: python3-jinja2 is not installed")
    sys.exit(SKIPPED)

import conversations
import hf_jinja


def render_all(command, requests):
    """The command's reply to every request."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def write():
        for request in requests:
            process.stdin.write(json.dumps(dict(request, now=hf_jinja.NOW)) + "\n")
        process.stdin.close()

    writer = threading.Thread(target=write)
    writer.start()
    replies = [json.loads(line) for line in process.stdout]
    writer.join()
    if process.wait() == SKIPPED:
        print("skipped: npm package @huggingface/jinja is not installed in tests/npm")
        sys.exit(SKIPPED)
    if process.returncode != 0 or len(replies) != len(requests):
        sys.exit(f"{command[0]} ended with {process.returncode} after {len(replies)} of {len(requests)} requests")
    return replies


def difference(expected, actual):
    """What is wrong, or None."""
    if ("text" in expected) != ("text" in actual):
        return f"jinja2: {str(expected)[:300]}\n  quire:  {str(actual)[:300]}"
    if "text" in expected:
        want, got = expected["text"], actual["text"]
        if want == got:
            return None
        at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
        return f"at character {at}\n  jinja2: …{want[max(0, at - 30):at + 60]!r}\n  quire:  …{got[max(0, at - 30):at + 60]!r}"
    if expected["raised"] and expected["error"] != actual["error"]:
        return f"messages differ\n  jinja2: {expected['error']}\n  quire:  {actual['error']}"
    return None


def template_files(arguments):
    for argument in map(pathlib.Path, arguments):
        if argument.is_dir():
            yield from sorted(p for p in argument.rglob("*") if p.suffix == ".jinja")
        elif argument.exists():
            yield argument


def npm_templates(folder):
    """Files with the templates of the npm package; none when it is not installed."""
    outcome = subprocess.run(["node", HERE / "npm_templates.mjs", folder], capture_output=True, text=True)
    if outcome.returncode not in (0, SKIPPED):
        sys.exit(outcome.stderr)
    return list(template_files([folder]))


def main():
    program, arguments = sys.argv[1], [a for a in sys.argv[2:] if not a.startswith("--")]
    second_opinion = "--second-opinion" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        files = list(template_files(arguments)) + (npm_templates(folder) if "--npm" in sys.argv else [])
        if not files:
            print("skipped: no templates are there:", *sys.argv[2:])
            return SKIPPED
        return check(program, files, second_opinion)


def check(program, files, second_opinion):
    total = failures = rendered = raised = agree = 0
    for path in files:
        # Many files: fewer conversations with each.
        named = list(conversations.cases(path.read_text(encoding="utf-8"), thorough=len(files) < 40))
        replies = render_all([program], [request for _, request in named])
        others = []
        if second_opinion:
            others = render_all(["node", HERE / "npm_render.mjs"], [request for _, request in named])
        bad = 0
        for number, ((name, request), reply) in enumerate(zip(named, replies)):
            expected = hf_jinja.render(request)
            agree += bool(others) and others[number].get("text") == expected.get("text")
            total += 1
            rendered += "text" in expected
            raised += expected.get("raised", False)
            wrong = difference(expected, reply)
            if wrong:
                bad += 1
                if bad <= 3:
                    print(f"{path.name}: {name}: {wrong}")
        failures += bad
        if bad:
            print(f"{path.name}: {bad} of {len(named)} differ")
    print(f"{len(files)} templates, {total} conversations ({rendered} rendered, {raised} refused by the template, "
          f"{total - rendered - raised} failed in jinja2): {failures} differences")
    if second_opinion:
        print(f"@huggingface/jinja agrees with jinja2 in {agree} of them")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
