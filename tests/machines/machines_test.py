#!/usr/bin/env python3
"""The kernels on machines that this one is not, in qemu.

usage: machines_test.py haswell|aarch64 BUILD

haswell   the programs in BUILD on a CPU with AVX2 and nothing above: an AVX-512 instruction would end them
aarch64   the kernels and their tests compiled for 64-bit ARM (preset aarch64), on a core with and on one without dot
          products of bytes

On both, the digests of what the kernels compute (src/kernels/digest_main.cc) must be those of avx2 on this machine. Exits
with 77 when qemu or the C++ library for ARM is missing.
"""
import pathlib
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
DEMO = SOURCE / "models" / "demo"
SKIPPED = 77
# Emulated, these take minutes: more shapes of the same code.
SLOW = "*ARowIs*:*PanelRanges*:*ManyRowsAreCut*:Attention.StaysWithin*:*AChunkIs*:*WhatAQuery*:*APoisoned*:*TogetherIs*"


def missing(what, package):
    print(f"skipped: {what} is missing (Debian package {package}; ./run setup installs it)")
    sys.exit(SKIPPED)


def run(*command, **options):
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], check=True, timeout=600, **options)


def output_of(*command):
    return run(*command, stdout=subprocess.PIPE, text=True).stdout


def digests(*command):
    """{tier: lines without the tier}, from kernels_digest."""
    tiers = {}
    for line in output_of(*command).splitlines():
        tier, rest = line.split(" ", 1)
        tiers.setdefault(tier, []).append(rest)
    return tiers


def expect(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")


def expect_same_bits(emulated, tier, build):
    """The digests of `tier` are those that avx2 has on this machine."""
    expect(list(emulated) == ["reference", tier], f"the tiers of this CPU are {list(emulated)}")
    here = digests(build / "kernels_digest")["avx2"]
    expect(len(here) > 50, f"kernels_digest printed {len(here)} lines")
    different = [f"{a} here, {b} there" for a, b in zip(here, emulated[tier], strict=True) if a != b]
    expect(not different, f"{tier} computes other bits than avx2 on this machine:\n" + "\n".join(different))


def test_haswell(build):
    # Without the features that qemu cannot emulate, and would warn of.
    haswell = ["qemu-x86_64-static", "-cpu", "Haswell-noTSX,-pcid,-invpcid,-tsc-deadline,-x2apic,-spec-ctrl"]
    if shutil.which(haswell[0]) is None:
        missing(haswell[0], "qemu-user-static")
    expect_same_bits(digests(*haswell, build / "kernels_digest"), "avx2", build)
    run(*haswell, build / "kernels_test", "--gtest_brief=1",
        f"--gtest_filter=-{SLOW}:*StaysWithin*")
    expect(output_of(*haswell, build / "quire", "--version").startswith("quire "), "quire --version")
    prompt = ["run", DEMO, "--prompt", "The capital of", "--temperature", "0", "--max-tokens", "6", "--threads", "1",
              "--kv-memory", "16MiB"]
    here = output_of(build / "quire", *prompt, "--isa", "avx2")
    expect(output_of(*haswell, build / "quire", *prompt) == here, f"not the same answer as here: {here}")


def test_aarch64(build):
    qemu = "qemu-aarch64-static"
    if shutil.which(qemu) is None:
        missing(qemu, "qemu-user-static")
    library = output_of("clang++-19", "--target=aarch64-linux-gnu", "-print-file-name=libstdc++.a").strip()
    if not pathlib.Path(library).is_absolute():
        missing("the C++ library for 64-bit ARM", "libstdc++-12-dev-arm64-cross")
    arm = SOURCE / "build" / "aarch64"
    run("cmake", "--preset", "aarch64", cwd=SOURCE, stdout=subprocess.DEVNULL)
    run("cmake", "--build", arm, "--target", "kernels_test", "kernels_digest")
    # Neoverse N1 has the dot products, Cortex-A72 does not.
    expect_same_bits(digests(qemu, "-cpu", "neoverse-n1", arm / "kernels_digest"), "neon", build)
    tiers = list(digests(qemu, "-cpu", "cortex-a72", arm / "kernels_digest"))
    expect(tiers == ["reference"], f"the tiers of a CPU without dot products are {tiers}")
    run(qemu, "-cpu", "neoverse-n1", arm / "kernels_test", "--gtest_brief=1", f"--gtest_filter=-{SLOW}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("haswell", "aarch64"):
        sys.exit(__doc__)
    (test_haswell if sys.argv[1] == "haswell" else test_aarch64)(pathlib.Path(sys.argv[2]).resolve())
    print("passed")
