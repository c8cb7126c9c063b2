"""Write docs/performance.md from what the benchmarks measured: `python -m benchmarks.page`."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"

TEXT = """# What bounds each figure

This page is written by `python -m benchmarks.page` from the files in `benchmarks/results`, which `benchmarks.gpu`
measured: medians of {repeats} on an {device}, JAX {jax}. Measure your own machine with
`python -m benchmarks` (CPU) and `python -m benchmarks.gpu FILE` (GPU).

## Local work

Every method's local loop asks the problem for τ_i steps. A quadratic answers in closed form: two products with its
eigenvectors whatever τ_i is. Logistic and softmax regression, and quadratics with `closed_form=False`, take the steps
one by one. On a CPU that is a loop over gradients. On an NVIDIA GPU it is one kernel: a client's rows are read once a
round into registers and stay there for all its steps, and each client stops at its own τ_i. Clients whose rows do not
fit the registers (about 100 KB) take the loop.

The loop is bound by memory: it reads all rows twice in each of max τ_i steps. The kernel is bound by the instructions
it issues: two multiply-adds an entry and step, and the sums across threads.

{kernel}

An elementwise copy moves {copy:.1f} TB/s here, and a float32 matrix product runs at {flops:.0f} TFLOP/s.

## Rounds

Whole rounds of FedLin with every measure recorded. With few clients a round is bound by the launches of its kernels;
with many by memory: for W1 × 500, A_i once for the gradient and the eigenvectors twice. The cohort's round was
measured while it still shuffled a million numbers and measured f on every client.

{rounds}

## Recording

The loss, the gradient norm, the gap and the distance after every round cost this share of the round. They take a
few launches where the Hessian of f is known, and two more passes over the rows where it is not.

{recording}

## Batches

{batches}

## Several devices

`simulate(..., devices=4)` shares the clients equally over four devices, each holding its own clients' data; only means
travel between them. The result is that of one device up to rounding. On several machines, call
`jax.distributed.initialize(...)` in each process, then the same `simulate(..., devices=jax.devices())` in all of them.
Between CPUs the sums travel by gloo, which in one of our test runs mixed up two sums of a round and ended it.

A CPU shows a device for every core, or as many as `JAX_NUM_CPU_DEVICES` says. Its cores share the clients without being
asked where a round reads 32 MB or more, and the runs of a batch in any case. Cores that share clients wait for each
other in every phase: on a machine that is busy with other work, `JAX_NUM_CPU_DEVICES=1` is faster.

## Compilation

A second run of the same shape compiles nothing. The command `fedlin` also keeps what it compiled on disk, in the
user's cache folder, or where `FEDLIN_CACHE` says; an empty `FEDLIN_CACHE` keeps nothing. The library keeps nothing
on disk by itself: set `jax_compilation_cache_dir` for that.
"""


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, ("---",) * len(heads), *rows)]
    return "\n".join(lines)


def micro(seconds: float) -> str:
    """A time to three digits."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def write(measured: dict[str, Any]) -> str:
    """The page."""
    figures = measured["figures"]
    kernels = [f for f in figures if "fused seconds" in f]
    rounds = [f for f in figures if "seconds a round" in f and "share of a round" not in f]
    shares = [f for f in figures if "share of a round" in f]
    batches = [f for f in figures if "together" in f]
    return TEXT.format(
        repeats=measured["repeats"],
        device=measured["device"],
        jax=measured["jax"],
        copy=figures[0]["copy bytes/s"] / 1e12,
        flops=figures[0]["float32 flop/s"] / 1e12,
        kernel=table(
            ("", "loop", "of copy bandwidth", "kernel", "times faster", "TFLOP/s", "difference"),
            [
                (
                    f["figure"],
                    micro(f["loop seconds"]),
                    f"{f['loop share of copy bandwidth']:.0%}",
                    micro(f["fused seconds"]),
                    f"{f['times faster']:.1f}",
                    f"{f['fused flop/s'] / 1e12:.1f}",
                    f"{f['difference']:.0e}",
                )
                for f in kernels
            ],
        ),
        rounds=table(("", "a round"), [(f["figure"], micro(f["seconds a round"])) for f in rounds]),
        recording=table(
            ("", "a round", "without", "share"),
            [
                (
                    f["figure"],
                    micro(f["seconds a round"]),
                    micro(f["without measures"]),
                    f"{f['share of a round']:.0%}",
                )
                for f in shares
            ],
        ),
        batches=table(
            ("", "together", "one after another", "times faster"),
            [(f["figure"], micro(f["together"]), micro(f["apart"]), f"{f['times faster']:.1f}") for f in batches],
        ),
    )


def read() -> dict[str, Any]:
    """What `benchmarks.gpu` wrote."""
    found: dict[str, Any] = json.loads((RESULTS / "gpu.json").read_text())
    return found


if __name__ == "__main__":
    PAGE.write_text(write(read()))
