"""The commands of `fedlin theory`: worst cases of FedLin, and the table of certified steps."""

from pathlib import Path
from typing import Annotated

import typer

from fedlin.cli_errors import cli_errors

app = typer.Typer(
    help="Exact worst cases by semidefinite programs (needs the extra fedlin\\[exact]).", no_args_is_help=True
)


@app.command()
def factor(
    kappa: Annotated[float, typer.Option(help="The condition number κ = L/μ of the clients' functions.")] = 10.0,
    tau: Annotated[str, typer.Option(help="Local steps τ_i: one number, or one a client as in 1,20.")] = "5",
    eta_bar: Annotated[float, typer.Option(help="η̄L, where η_i = η̄/τ_i.")] = 1.0,
) -> None:
    """Print the exact factor of ‖x - x*‖² in a round of FedLin: as proved, and as measured on the worst functions.

    Exit status: 2 where the request cannot be met.
    """
    with cli_errors():
        _factor(kappa, tau, eta_bar)


@app.command()
def table(
    out: Annotated[Path, typer.Option(help="Where the table is written.")] = Path("certified_steps.json"),
    finished: Annotated[
        Path, typer.Option(help="Rows that are finished; a run that was stopped goes on from them.")
    ] = Path("certified_steps.rows"),
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
) -> None:
    """Compute the table of certified steps that ships with the package, and prove every row; takes some hours.

    Exit status: 2 where the request cannot be met.
    """
    from fedlin.theory.exact.build_table import build, write

    with cli_errors():
        rows = build(finished, jobs)
        write(rows, out)
        typer.echo(f"{len(rows)} steps in {out}")


@app.command()
def check(
    kappa: Annotated[float, typer.Option(help="The condition number whose rows are proved again.")] = 10.0,
    whole: Annotated[bool, typer.Option("--all", help="Prove all rows; takes about an hour.")] = False,
) -> None:
    """Prove again, in exact arithmetic, the rows of the shipped table that serve a condition number; takes minutes.

    Exit status: 1 where a row does not hold, 2 where the request cannot be met.
    """
    from fedlin.errors import ArgumentError
    from fedlin.theory.certified_steps import stored_rows
    from fedlin.theory.exact.build_table import prove_row
    from fedlin.theory.exact.semidefinite import SolverError

    with cli_errors():
        rows = [row for row in stored_rows() if whole or float(row["kappa"][0]) <= kappa <= float(row["kappa"][1])]
        if not rows:
            ends = [float(edge) for row in stored_rows() for edge in row["kappa"]]
            raise ArgumentError(
                f"kappa = {kappa:g} is not in the table: give a condition number from {min(ends):g} to {max(ends):g}."
            )
        for row in rows:
            span, eta_bar = "κ from {} to {}".format(*row["kappa"]), row["eta_bar"]
            try:
                typer.echo(f"{span}, η̄ = {eta_bar}/L: {prove_row(row)} bounds proved")
            except SolverError as failure:
                typer.echo(f"{span}, η̄ = {eta_bar}/L: {failure}")
                raise typer.Exit(1) from failure


def _factor(kappa: float, tau: str, eta_bar: float) -> None:
    # Loaded here so that `--help` answers at once.
    from fedlin.algorithms import fedlin
    from fedlin.checks import positive, positive_integer, real
    from fedlin.engines.simulation.simulate import simulate
    from fedlin.plan import Plan
    from fedlin.theory.exact import Smooth, worst_case

    real("kappa", kappa, lambda value: value > 1, "a condition number κ above 1")
    positive("eta_bar", eta_bar)
    steps = [positive_integer("tau", int(part) if part.strip().isdigit() else part) for part in tau.split(",")]
    plan = Plan.scaled(steps[0] if len(steps) == 1 else steps, eta_bar)
    case = worst_case(fedlin(), plan, Smooth(1.0, 1 / kappa))
    worst = case.worst_functions
    distance = simulate(fedlin(), worst.problem, worst.plan, 1, x0=worst.x0).distance
    full = sum((1 - eta_bar / count / kappa) ** count for count in steps) / len(steps)
    rows = {
        "proved, for all functions": case.factor,
        f"measured on the worst ones ({worst.problem.clients} clients, {worst.problem.dim} dimensions)": distance[1]
        / distance[0],
        "the full rate, (mean of (1 - η_iμ)^τ_i)²": full**2,
        "what Theorem 1 promises of the gap, at η̄ = 1/(6L)": 1 - 1 / (6 * kappa),
    }
    typer.echo(f"Factor a round of FedLin with τ = {tau}, η̄ = {eta_bar:g}/L, κ = {kappa:g}:")
    for name, value in rows.items():
        typer.echo(f"  {value:.6f}  {name}")
