"""The files `fedlin federation init` writes: a run that works as it is, to be changed line by line."""

from collections.abc import Sequence

SETTINGS = """\
# A federation of fedlin. This file travels with the job to the server and to every site.

[run]
# name = "first"         # tells one run of the federation from another: see fedlin federation run
rounds = 200
{model}
seed = 0
# stop = 1e-10           # end once a round moves the model by no more than this
# secure = true          # the server learns sums of uploads alone: from 3 sites on, with a norm_bound below
# aggregate = "trimmed_mean(1)"  # a mean that one false upload cannot move far, for sites of equal weight

[algorithm]              # any method of fedlin, with its arguments
name = "fedlin"
{uplink}

[policy]
timeout = 60.0           # seconds one exchange may take
patience = 3600.0        # seconds a round is asked again before the run gives up
# quorum = 2             # go on with the first 2 answers, with steps of a tenth; everyone is waited for unless given
# cohort = 2             # draw 2 sites for each round and wait for these, instead of a quorum
# forget_after = 50      # with a quorum: who has missed so many rounds in a row has left for good
# late_every = 10        # with a quorum: who was not counted in so many rounds is waited for
# norm_bound = 1e3       # the largest norm of an upload; a larger one is rejected and its site named
# rejections = 3         # who sends so many in a row is kept out, until it is let in again
# max_share = 0.9        # the most that one site may count, unless its weight is approved below

# [evaluation]             # by each site's evaluate(), on rows of its own
# every = 10             # rounds
# best = "error"         # keep the model with the best mean of this, best.npy at the server
# largest = false        # for an error the smallest is the best
# patience = 5           # end after so many evaluations without a better model

[sites]                  # local steps and step size of each; slower machines take fewer steps
# weight = 100.0 in a line approves the weight that the site's client.py has to declare
{sites}
"""

SITE = """\
# What {name} allows, whatever the server asks. This file is for {name}'s owner, and stays on {name}'s machine.

[limits]                 # what goes beyond is refused, and reported on both sides
tau = 10000              # local steps of one request
# eta = 1.0              # step size
rounds = 100000          # of one run
requests = 1000          # of one round, repetitions not counted
# methods = ["fedlin"]   # any method of fedlin unless given
# runs = []              # ids of the runs that are approved, as refusals name them; any, one at a time, unless given
# epsilon = 4.0          # privacy spent by all runs together, against the server; methods without noise are refused
# delta = 1e-6
# secure = true          # take part in runs alone whose server learns nothing but sums of uploads
"""

START = "start.npy"
MODEL = """\
dim = 20                 # entries of the model; every site's problem has as many
# start = "start.npy"    # the model to start from, a file beside this one; zeros unless given
dtype = "float64"        # or "float32"\
"""
TORCH_MODEL = f"""\
start = "{START}"      # the model to start from, beside this file: problem().start of any site's client.py
dtype = "float32"        # or "float64", as the model's parameters are\
"""
UPLINK = """\
uplink = "innovation(top_k(10))"   # sites send 10 of 20 entries of what changed in their gradients\
"""
TORCH_UPLINK = """\
uplink = "innovation(top_k(40))"   # sites send 40 of 177 entries of what changed in their gradients\
"""

CLIENT = '''\
"""{name}'s part in the federation: its data and its loss. This file and what it reads stay on {name}'s machine."""

import numpy as np

import fedlin

ROWS, TEST_ROWS, DIM = 100, 50, 20
WEIGHT = float(ROWS)  # how much this site counts, here by its rows


def rows() -> tuple[np.ndarray, ...]:
    """Replace what is drawn by your own: features and targets to learn from, and others to test a model on."""
    rng = np.random.default_rng({seed})
    features, truth = rng.normal(size=(ROWS, DIM)), rng.normal(size=DIM)
    targets = features @ truth + 0.1 * rng.normal(size=ROWS)
    test = rng.normal(size=(TEST_ROWS, DIM))
    return features, targets, test, test @ truth


def problem() -> fedlin.problems.Problem:
    """Replace the problem by your own loss."""
    features, targets, _, _ = rows()
    return fedlin.problems.regression([features], [targets])


def evaluate(model: np.ndarray) -> dict[str, float]:
    """What [evaluation] in the settings asks for: replace the error by what you want to know of a model."""
    _, _, features, targets = rows()
    return {{"error": float(np.mean((features @ model - targets) ** 2))}}
'''


TORCH_CLIENT = '''\
"""{name}'s part in the federation: its data, model and loss. This file and what it reads stay on {name}'s machine."""

import torch
from torch import nn

import fedlin.torch

ROWS = 100
WEIGHT = float(ROWS)  # how much this site counts, here by its rows


def problem() -> fedlin.torch.TorchProblem:
    """Replace the drawn tensors by your own data; the model is the same at every site."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 1))
    draw = torch.Generator().manual_seed({seed})
    inputs = torch.randn(ROWS, 20, generator=draw)
    targets = inputs[:, :1].sin() + 0.1 * torch.randn(ROWS, 1, generator=draw)
    return fedlin.torch.problem(model, nn.functional.mse_loss, [(inputs, targets)])
'''


def settings_text(sites: Sequence[str], torch: bool = False) -> str:
    """A `federation.toml`; the first site takes most local steps, as if its machine were the fastest."""
    steps = {site: 2 + 3 * (len(sites) - position) for position, site in enumerate(sites)}
    lines = [f"{site} = {{ tau = {tau}, eta = {0.03 / tau:.4g} }}" for site, tau in steps.items()]
    model, uplink = (TORCH_MODEL, TORCH_UPLINK) if torch else (MODEL, UPLINK)
    return SETTINGS.format(sites="\n".join(lines), model=model, uplink=uplink)


def site_text(name: str) -> str:
    """A `site.toml` with the limits that hold without it."""
    return SITE.format(name=name)


def client_text(name: str, seed: int, torch: bool = False) -> str:
    """A `client.py` with drawn data of its own."""
    return (TORCH_CLIENT if torch else CLIENT).format(name=name, seed=seed)
