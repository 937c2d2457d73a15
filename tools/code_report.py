#!/usr/bin/env python3
"""Prints the longest functions and files of src/. It informs and never fails.

usage: code_report.py [NUMBER_OF_ROWS]

The aims of the project are functions of at most 70 lines and files of at most 500. Functions are found by a scanner of
braces, not by a parser: comments, strings and preprocessor lines are blanked out first, then every `{` that follows a `)`
(with what may stand between a parameter list and a body) opens a function, unless a keyword like `if` stands before the
parentheses. Lambdas count as part of the function that they stand in. What macros do to the text is not seen.
"""
import pathlib
import re
import sys

FUNCTION_LINES_MAX, FILE_LINES_MAX = 70, 500

BLANKED = re.compile(
    r'R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"'  # raw strings
    r'|//[^\n]*|/\*.*?\*/'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # characters, but not the ' of 1'000
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
    re.S | re.M,
)
# Between the parameter list and the body: qualifiers, a trailing return type, member initialisers.
AFTER_PARAMETERS = re.compile(r"^\s*(?:const|noexcept|override|final|mutable|&&?|->[^{};]*|requires[^{};]*|\s)*$")
NOT_FUNCTIONS = {"if", "for", "while", "switch", "catch", "return", "sizeof", "alignas", "decltype", "constexpr", "else"}


def blank(source):
    return BLANKED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)


def matching(text, at, opener, closer, step):
    """Where the bracket that matches the one at `at` is, to the right (step 1) or the left (step -1); -1: nowhere."""
    depth = 0
    while 0 <= at < len(text):
        depth += (text[at] == opener) - (text[at] == closer)
        if depth == 0:
            return at
        at += step
    return -1


def function_name(text, brace):
    """The name of the function whose body opens at `brace`, or None when it is something else that opens there."""
    start = max(text.rfind(";", 0, brace), text.rfind("}", 0, brace)) + 1
    # Member initialisers may hold braces of their own: go back over "name{…}, name(…)" to the colon.
    head = text[max(0, brace - 2000) : brace]
    initialisers = re.search(r"\)\s*(?:noexcept\s*)?:\s*(?!:)[^;]*$", head)
    if initialisers and "{" not in re.sub(r"\{[^{}]*\}", "", initialisers[0]) and "?" not in initialisers[0]:
        close = max(0, brace - 2000) + initialisers.start()
    else:
        close = text.rfind(")", start, brace)
        if close < 0 or not AFTER_PARAMETERS.match(text[close + 1 : brace]):
            return None
    opened = matching(text, close, ")", "(", -1)
    if opened < 0:
        return None
    name = re.search(r"((?:[A-Za-z_][\w:<>, ]*::)?~?(?:operator\s*\S+|[A-Za-z_]\w*))\s*$", text[max(0, opened - 200) : opened])
    if not name:
        return None  # a lambda, a cast
    short = name[1].split()[-1]
    return None if short in NOT_FUNCTIONS else short


def functions(source):
    """(name, first line, number of lines) of the functions, the inner ones of local classes left out."""
    text = blank(source)
    found, at = [], 0
    while (brace := text.find("{", at)) >= 0:
        at = brace + 1
        name = function_name(text, brace)
        end = matching(text, brace, "{", "}", 1) if name else -1
        if end < 0:
            continue
        first = text.count("\n", 0, brace) + 1
        found.append((name, first, text.count("\n", brace, end) + 1))
        at = end + 1
    return found


def table(title, rows):
    print(title)
    for lines, where in rows:
        print(f"  {lines:5}  {where}")


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    root = pathlib.Path(__file__).resolve().parent.parent
    found, files = [], []
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".h", ".cc", ".inc"):
            continue
        source = path.read_text(encoding="utf-8", errors="replace")
        where = path.relative_to(root)
        files.append((source.count("\n"), str(where)))
        if not path.stem.endswith("_test"):
            found += [(lines, f"{where}:{first} {name}") for name, first, lines in functions(source)]
    found.sort(reverse=True)
    files.sort(reverse=True)
    long_functions = sum(lines > FUNCTION_LINES_MAX for lines, _ in found)
    long_files = sum(lines > FILE_LINES_MAX for lines, _ in files)
    table("The longest functions (without tests):", found[:count])
    table("The longest files:", files[:count])
    print(f"{len(found)} functions, {long_functions} above {FUNCTION_LINES_MAX} lines "
          f"({100 * long_functions / max(1, len(found)):.1f} %); {len(files)} files, {long_files} above {FILE_LINES_MAX} "
          f"lines; {sum(lines for lines, _ in files)} lines in all")


if __name__ == "__main__":
    main()
