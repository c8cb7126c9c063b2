"""A row of the contract for every public method: to add a method, add a row."""

from collections.abc import Mapping

import numpy as np

import fedlin
from contract import Row
from fedlin import (
    cast,
    error_feedback,
    innovation,
    low_rank,
    natural,
    nearest,
    plain,
    privacy,
    quantize,
    rand_k,
    shifted,
    sign,
    top_k,
)
from fedlin.problems.problem import Problem
from quadratics import CLIENTS, DIM, TAU


def one_step_size(instance: Problem) -> fedlin.Plan:
    return fedlin.Plan(TAU, 0.01)


def one_large_step(instance: Problem) -> fedlin.Plan:
    return fedlin.Plan(1, 1 / instance.smoothness)


def one_of_each(instance: Problem) -> fedlin.Plan:
    return fedlin.Plan(3, 1 / instance.smoothness)


def accelerated(instance: Problem) -> fedlin.Plan:
    return fedlin.theory.fedac(instance, 5)


def changes(instance: Problem) -> fedlin.Plan:
    return fedlin.theory.ef21(instance, DIM / 2)


def differences(instance: Problem) -> fedlin.Plan:
    return fedlin.theory.diana(instance, DIM / 2 - 1)


def half_steps(instance: Problem) -> fedlin.Plan:
    return fedlin.Plan(1, 0.3 / instance.smoothness)


def resting(instance: Problem) -> fedlin.Plan:
    return fedlin.Plan(np.array([1, 3, 2, 3, 1, 2, 3]), 1 / (3 * instance.smoothness))


def newton(instance: Problem) -> fedlin.Plan:
    return fedlin.Plan(1, 1.0)


def newton_steps(instance: Problem) -> fedlin.Plan:
    return fedlin.theory.fedlin_newton(instance, 2)


def splitting(instance: Problem) -> fedlin.Plan:
    return fedlin.theory.fedsplit(instance)


DRAWS: Mapping[str, str] = {
    "the_order_of_the_clients_does_not_matter": "each client draws its own entries, and its number decides which"
}
NOISED: Mapping[str, str] = {
    "single_and_double_precision": "no round is sent in full, and a draw in another precision is another draw"
}
FROM_THE_START: Mapping[str, str] = {**DRAWS, **NOISED}

LAYERS = {"bias": np.zeros(2), "weights": np.zeros((1, 3))}
ROWS = [
    Row(fedlin.gradient_descent, {}, "converges", one_large_step),
    Row(fedlin.fedavg, {}, "stalls"),
    Row(fedlin.fedprox, {"beta": 0.5}, "stalls"),
    Row(fedlin.fednova, {}, "stalls", one_step_size),
    Row(fedlin.scaffold, {}, "converges"),
    Row(fedlin.scaffold, {"option": 1, "server_step": 0.8}, "converges"),
    Row(fedlin.fedsplit, {}, "converges", splitting),
    Row(fedlin.fedsplit, {"steps": 3, "start": "u"}, "stalls", splitting),
    Row(fedlin.fedsplit, {"steps": 3, "start": "model"}, "converges", splitting),
    Row(fedlin.scaffnew, {}, "converges", one_of_each, every_client=True),
    Row(fedlin.ef21, {"compressor": top_k(2)}, "converges", changes, rounds=2000),
    Row(
        fedlin.diana,
        {"compressor": rand_k(2, unbiased=True), "alpha": 0.4},
        "converges",
        differences,
        draws=True,
        fails=DRAWS,
    ),
    Row(
        fedlin.fedpaq,
        {"compressor": quantize(4)},
        "neighbourhood",
        draws=True,
        fails=FROM_THE_START,
    ),
    Row(
        fedlin.fedpaq,
        {"compressor": privacy.gaussian(1.0, 0.02)},
        "neighbourhood",
        draws=True,
        fails=NOISED,
    ),
    Row(
        fedlin.fedlin,
        {"uplink": innovation(privacy.gaussian(1.0, 0.01)), "model_uplink": privacy.gaussian(1.0, 0.01)},
        "neighbourhood",
        draws=True,
        fails=FROM_THE_START,
    ),
    Row(
        fedlin.fedlin,
        {
            "uplink": privacy.gaussian(50.0, 1e-3, where="central"),
            "model_uplink": privacy.gaussian(1.0, 0.01, where="central"),
        },
        "neighbourhood",
        draws=True,
        fails=NOISED,
    ),
    # Exactly, though quantised: at x* with δ_i = ∇f_i(x*) there is nothing left to quantise.
    Row(fedlin.fedcomgate, {"compressor": natural()}, "converges", draws=True, fails=FROM_THE_START),
    Row(fedlin.gradient_tracking, {}, "converges"),
    Row(fedlin.fedac, {}, "stalls", accelerated),
    Row(fedlin.s_local_svrg, {"renewal": 0.3}, "converges", every_client=True),
    Row(fedlin.compressed, {"k": 2}, "converges", every_client=True),
    Row(
        fedlin.compressed_scaffnew,
        {"clients": CLIENTS, "sparsity": 3},
        "converges",
        one_of_each,
        every_client=True,
        fails={"the_order_of_the_clients_does_not_matter": "a client's number decides which entries it sends"},
        long=True,
    ),
    Row(
        fedlin.locodl,
        {"compressor": rand_k(2, unbiased=True), "probability": 0.3, "pace": 0.8},
        "converges",
        half_steps,
        every_client=True,
        draws=True,
        rounds=1500,
        fails=DRAWS,
        long=True,
    ),
    Row(
        fedlin.adiana,
        {"compressor": rand_k(2, unbiased=True), "alpha": 0.4, "probability": 0.3},
        "converges",
        half_steps,
        every_client=True,
        draws=True,
        rounds=800,
        fails=DRAWS,
        long=True,
    ),
    Row(
        fedlin.marina,
        {"compressor": rand_k(2, unbiased=True), "probability": 0.4},
        "converges",
        half_steps,
        every_client=True,
        draws=True,
        rounds=800,
        fails=DRAWS,
        long=True,
    ),
    Row(
        fedlin.tamuna,
        {"clients": CLIENTS, "cohort": 4, "sparsity": 3},
        "converges",
        one_of_each,
        cohort=4,
        rounds=800,
        fails={"the_order_of_the_clients_does_not_matter": "a client's number decides whether it takes part"},
        long=True,
    ),
    Row(fedlin.gradskip, {"probability": 1 / 3}, "converges", resting, every_client=True, fails=DRAWS, long=True),
    Row(fedlin.fednl, {"compressor": low_rank(1)}, "converges", newton, every_client=True, long=True),
    Row(
        fedlin.fednl,
        {"compressor": top_k(4), "correction": "shift", "line_search": True, "start": "zero"},
        "converges",
        newton,
        every_client=True,
        long=True,
    ),
    Row(fedlin.fednl_pp, {"compressor": top_k(4), "start": "zero"}, "converges", newton, long=True),
    Row(fedlin.fedlin_newton, {}, "converges", newton_steps),
    Row(
        fedlin.fedlin_newton,
        {
            "uplink": innovation(nearest(31)),
            "downlink": plain(nearest(31)),
            "model_uplink": plain(nearest(31)),
            "model_downlink": plain(nearest(31)),
        },
        "converges",
        newton_steps,
        every_client=True,
        long=True,
    ),
    Row(fedlin.fedlin, {"same_batch": True}, "converges"),
    Row(fedlin.fedlin, {}, "converges"),
    Row(fedlin.fedlin, {"uplink": error_feedback(top_k(2))}, "neighbourhood"),
    Row(fedlin.fedlin, {"downlink": plain(top_k(2))}, "converges"),
    Row(fedlin.fedlin, {"uplink": top_k(2), "downlink": top_k(2)}, "neighbourhood"),
    Row(fedlin.fedlin, {"uplink": innovation(top_k(2))}, "converges"),
    Row(fedlin.fedlin, {"uplink": innovation(cast("float16", top_k(2)))}, "converges"),
    Row(
        fedlin.fedlin,
        {"uplink": innovation(cast("float16")), "downlink": cast("float16"), "model_downlink": cast("float16")},
        "converges",
        every_client=True,
    ),
    Row(fedlin.ef21, {"compressor": cast("float32", top_k(2))}, "converges", changes, rounds=2000),
    Row(fedlin.fedlin, {"downlink": innovation(top_k(2))}, "converges", every_client=True),
    Row(fedlin.fedlin, {"model_uplink": error_feedback(top_k(2))}, "converges"),
    Row(fedlin.fedlin, {"model_uplink": innovation(top_k(2))}, "converges"),
    Row(fedlin.fedlin, {"model_downlink": error_feedback(top_k(2))}, "converges", every_client=True),
    Row(fedlin.fedlin, {"model_downlink": innovation(top_k(2))}, "converges", every_client=True),
    Row(fedlin.fedlin, {"uplink": rand_k(2)}, "neighbourhood", draws=True, fails=DRAWS),
    Row(fedlin.fedlin, {"uplink": quantize(4)}, "neighbourhood", draws=True, fails=DRAWS),
    Row(fedlin.fedlin, {"uplink": sign()}, "neighbourhood"),
    Row(fedlin.fedlin, {"uplink": innovation(fedlin.per_layer(LAYERS, lambda size: top_k(size - 1)))}, "converges"),
    Row(fedlin.fedlin, {"uplink": shifted(rand_k(2, unbiased=True), 0.4)}, "converges", draws=True, fails=DRAWS),
    Row(
        fedlin.fedlin,
        {"downlink": innovation(quantize(4)), "model_uplink": sign()},
        "converges",
        every_client=True,
        draws=True,
    ),
]
