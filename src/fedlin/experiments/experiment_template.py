"""The experiment file that `fedlin init` writes: commented, and ready to run."""

TEMPLATE = """\
# An experiment for fedlin. Run it with: fedlin run {name}
# A list means one run for each entry; several lists mean every combination.

title = "FedLin against its rivals on least squares"
rounds = 300
seeds = [0]                      # a run for each
targets = [1e-6, 1e-10]          # the gaps f(x) - f* whose cost is compared
# participation = 0.5            # the share of clients in each round; 1.0 unless given
# measure = "grad_norm"          # what is compared; "gap" unless given

[stop]                           # a run may end before its last round
gap = 1e-11

[problem]                        # `fedlin problems` lists the kinds
kind = "least_squares"
clients = 10
dim = 20
samples = 100
alpha = [0.1, 10.0]              # how much the clients differ: two settings

[plan]
tau = {{ low = 2, high = 20, seed = 0 }}   # local steps of each client; or a number, or {{ each = [...] }}
eta_bar = "tuned"                # η_i = η̄/τ_i; a number, or "tuned": the best of a grid, by one rule for all
# eta = 0.01                     # or one step size for all clients; or a theorem: eta = "strongly_convex"

[[algorithm]]                    # `fedlin algorithms` lists the methods
name = "fedlin"

[[algorithm]]
name = "fedlin"
label = "fedlin, 5 of 20 entries up"
uplink = "innovation(top_k(5))"  # `fedlin compressors` lists what messages can go through

[[algorithm]]
name = "fedavg"

[[algorithm]]
name = "scaffold"

# [[algorithm]]
# name = "fedprox"
# beta = [0.1, 1.0]              # a list of an argument: two methods

# [[algorithm]]
# name = "fednova"
# plan = {{ eta = "tuned" }}       # what differs from [plan]: FedNova takes one step size for all clients
"""


def template(name: str) -> str:
    """The text of a file called `name`."""
    return TEMPLATE.format(name=name)
