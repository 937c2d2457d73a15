#!/usr/bin/env python3
"""Renders the snippets with jinja2 and writes golden.json, which the C++ tests compare quire with.

Run it again after a change of snippets.py. With --check nothing is written; exits 1 when golden.json is not what jinja2
gives here (77 without jinja2).
"""
import json
import pathlib
import sys

try:
    import jinja2  # noqa: F401
except ImportError:
    print("skipped: python3-jinja2 is not installed")
    sys.exit(77)

import hf_jinja
import snippets

GOLDEN = pathlib.Path(__file__).with_name("golden.json")


def golden():
    cases = []
    for source in ["{{ " + e + " }}" for e in snippets.EXPRESSIONS] + snippets.STATEMENTS:
        outcome = hf_jinja.render(dict(snippets.VARIABLES, template=source))
        case = {"template": source}
        if "text" in outcome:
            case["text"] = outcome["text"]
        else:
            # The words of Python's own errors are not part of the contract; those of raise_exception are.
            case["error"] = outcome["error"] if outcome["raised"] else True
        if "object at 0x" in case.get("text", "") or "function" in case.get("text", ""):
            case = {"template": source, "text": None}  # an address in memory: any text will do
        cases.append(case)
    return {"now": hf_jinja.NOW, "variables": snippets.VARIABLES, "cases": cases}


def main():
    text = json.dumps(golden(), indent=0, ensure_ascii=True) + "\n"
    if "--check" in sys.argv:
        same = GOLDEN.read_text() == text
        print("golden.json is", "up to date" if same else "not what jinja2 gives: run make_golden.py")
        return 0 if same else 1
    GOLDEN.write_text(text)
    print(text.count('"template"'), "cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
