"""Write docs/performance.md and its picture from what the benchmarks measured: `python -m benchmarks.page`."""

import json
from pathlib import Path
from typing import Any

from benchmarks import cpu_page, networks_page, picture
from benchmarks.networks import FILE as NETWORKS
from benchmarks.tables import batches, micro, recording, table

GPU, CPU = (Path(__file__).parent / "results" / f"{name}.json" for name in ("gpu", "cpu"))
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"

TEXT = """# How fast it is, and what bounds it

This page and its picture are written by `python -m benchmarks.page` from the files in `benchmarks/results`. Measure
your own machine with `make bench` (CPU, beside the other packages; minutes) and `make bench-gpu` (GPU).

{cpu}
## On a GPU

Medians of {repeats} on an {device}, JAX {jax}.

### Local work

Every method's local loop asks the problem for τ_i steps. A quadratic computes them in closed form: two products with
its eigenvectors whatever τ_i is. Logistic and softmax regression, and quadratics with `closed_form=False`, take the
steps one by one. On a CPU that is a loop over gradients. On an NVIDIA GPU it is one kernel: a client's rows are read
once a round into registers and stay there for all its steps, and each client stops at its own τ_i. Clients whose rows
do not fit the registers (about 100 KB) take the loop.

The loop is bound by memory: it reads all rows twice in each of max τ_i steps. The kernel is bound by the instructions
it issues: two multiply-adds an entry and step, and the sums across threads.

{kernel}

An elementwise copy moves {copy:.1f} TB/s here, and a float32 matrix product runs at {flops:.0f} TFLOP/s.

### Rounds

Whole rounds of FedLin with every measure recorded. With few clients a round is bound by the launches of its kernels;
with many by memory: for W1 × 500, A_i once for the gradient and the eigenvectors twice.

{rounds}

### Recording

The loss, the gradient norm, the gap and the distance after every round cost this share of the round. They take a
few launches where the Hessian of f is known, and two more passes over the rows where it is not.

{recording}

### Batches

{batches}

{networks}
## Several devices

`simulate(..., devices=4)` shares the clients equally over four devices, each holding its own clients' data; means
are taken by all-reduce. The result is that of one device up to rounding. On several machines, call
`jax.distributed.initialize(...)` in each process, then the same `simulate(..., devices=jax.devices())` in all of them.
Between CPUs the all-reduce uses gloo, which in one of our test runs mixed up two sums of a round and ended the run.

A CPU shows a device for every core, or as many as `JAX_NUM_CPU_DEVICES` says. Its cores share the clients by
default where a round reads 32 MB or more, and the runs of a batch in any case. Cores that share clients wait for each
other in every phase: on a machine that is busy with other work, `JAX_NUM_CPU_DEVICES=1` is faster.

## Compilation

A second run of the same shape compiles nothing. The command `fedlin` also keeps what it compiled on disk, in the
user's cache folder, or where `FEDLIN_CACHE` says; an empty `FEDLIN_CACHE` keeps nothing. The library keeps nothing
on disk by itself: call `fedlin.keep_compiled()` for that.
"""


def write(cpu: dict[str, Any], gpu: dict[str, Any], networks: dict[str, Any]) -> str:
    """The page."""
    figures = gpu["figures"]
    kernels = [f for f in figures if "fused seconds" in f]
    rounds = [f for f in figures if "seconds a round" in f and "share of a round" not in f]
    shares = [f for f in figures if "share of a round" in f]
    return TEXT.format(
        cpu=cpu_page.write(cpu),
        repeats=gpu["repeats"],
        device=gpu["device"],
        jax=gpu["jax"],
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
        recording=recording(shares),
        networks=networks_page.write(networks),
        batches=batches([f for f in figures if "together" in f]),
    )


def read() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What `benchmarks`, `benchmarks.gpu` and `benchmarks.networks` wrote."""
    return json.loads(CPU.read_text()), json.loads(GPU.read_text()), json.loads(NETWORKS.read_text())


def save() -> None:
    """The page and the picture."""
    cpu, gpu, networks = read()
    picture.save(cpu["race"]["rows"])
    PAGE.write_text(write(cpu, gpu, networks))


if __name__ == "__main__":
    save()
