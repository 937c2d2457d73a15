#!/usr/bin/env python3
"""Holds every #include of src/ against the table of modules; prints each fault, and exits 1 when there is one.

A module may include itself and what its row names. Tests, fuzzers and benchmarks of a module may include the same,
and whatever TEST_EXTRA grants.
"""
import pathlib
import re
import sys

LEVELS = {
    0: ["base"],
    1: ["kernels", "text", "kv", "api"],
    2: ["guide", "weights", "nn", "comm", "wire", "sched"],
    3: ["sample", "models"],
    4: ["engine", "server"],
    5: ["bench"],
    6: ["cli"],
}
LEVEL = {module: level for level, modules in LEVELS.items() for module in modules}


def below(level, without=()):
    return [m for m, l in LEVEL.items() if l < level and m not in without]


TABLE = {
    "base": [],
    "kernels": ["base"],
    "text": ["base"],
    "kv": ["base"],
    "api": ["base"],
    "guide": ["base", "text"],
    "weights": ["base", "kernels"],
    "nn": ["base", "kernels"],
    "comm": ["base"],
    "wire": ["base", "api"],
    "sched": ["base", "api", "kv"],
    "sample": ["base", "api", "kernels"],
    "models": ["base", "nn", "weights", "comm"],
    "engine": below(4),
    "server": ["base", "api", "text", "wire"],
    "bench": below(5),
    "cli": below(6),
}
# What the tests of a module may include besides.
TEST_EXTRA = {
    "models": ["kernels"],  # they run on every kernel tier
}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def main():
    source = pathlib.Path(__file__).resolve().parent.parent / "src"
    faults = []
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".h", ".cc"):
            continue
        module = path.relative_to(source).parts[0]
        if module not in TABLE:
            faults.append(f"{path.relative_to(source)}: the folder {module} is not in the table")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match or "/" not in match.group(1):
                continue
            target = match.group(1).split("/")[0]
            granted = TABLE[module] + (TEST_EXTRA.get(module, []) if path.stem.endswith("_test") else [])
            if target != module and target in TABLE and target not in granted:
                faults.append(f"{path.relative_to(source)}:{number}: {module} may not include {target}")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
