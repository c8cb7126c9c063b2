"""What an experiment file may say: one model a table, each key with its default and what is allowed.

A key's description finishes the sentence "give ..." in an error. Lists that mean a grid are taken apart before these
models see them (see `grid`), so each describes a single run.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from fedlin import problems
from fedlin.columns import MEASURED
from fedlin.comparison import MEASURES

if TYPE_CHECKING:
    from fedlin.experiments.client_rows import ClientData

Count = Annotated[int, Field(ge=1, lt=2**31, description="a whole number of at least 1, below 2³¹")]
Seed = Annotated[int, Field(ge=0, lt=2**32, description="a whole number from 0 to 2³² - 1")]
Positive = Annotated[float, Field(gt=0, description="a finite number above 0")]
Nonnegative = Annotated[float, Field(ge=0, description="a finite number of at least 0")]
Share = Annotated[float, Field(gt=0, le=1, description="a number in (0, 1], the share of clients in a round")]
Path = Annotated[str, Field(min_length=1, description="the path of a file, as text")]
TomlTable = Mapping[str, Any]  # of an experiment's or a federation's file, as read
Tracked = Literal["tensorboard", "mlflow", "wandb"]
METRICS = ("accuracy", "explained")  # on rows held out: of classes, and of numbers or counts
_MEASURES = " or ".join(f'"{name}"' for name in MEASURES)


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


class Section(BaseModel):
    """A table of the file: no key it does not know, no value of another type; its checks are built when first used."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)


class OracleConfig(Section):
    """How exact the gradients of a problem are."""

    kind: str
    minibatch: Count | None = None
    noise: Nonnegative | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.minibatch is not None and self.noise is not None:
            raise ValueError("minibatch and noise exclude each other: leave one out.")
        return self


class LeastSquaresConfig(OracleConfig):
    """The paper's synthetic least squares."""

    kind: Literal["least_squares"]
    clients: Count = 20
    dim: Count = 100
    samples: Count = 500
    alpha: Nonnegative = 10.0
    seed: Seed = 0


class QuadraticConfig(OracleConfig):
    """Quadratics from an .npz file with arrays A (clients, d, d) and b (clients, d)."""

    kind: Literal["quadratic"]
    file: Path


class PythonConfig(OracleConfig):
    """A problem made by a function of the user's own; every other key is an argument of it."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)
    kind: Literal["python"] = "python"
    python: Annotated[str, Field(description='a file and a function in it, such as "model.py:problem"')]

    @property
    def arguments(self) -> dict[str, Any]:
        """What the function is called with."""
        return dict(self.model_extra or {})


class DataConfig(Section):
    """Where rows come from: a file, or a public data set by name."""

    file: Path | None = None
    name: Annotated[str, Field(description="the name of a public data set")] | None = None
    label: Annotated[str, Field(description="the name of a column")] | None = None
    client: Annotated[str, Field(description="the name of a column")] | None = None
    dim: Count | None = None
    missing: Annotated[
        list[str], Field(description='a list of texts that stand for a missing entry, such as ["-999"]')
    ] = []
    scale: Annotated[float, Field(gt=0, description="a number above 0, which features are divided by")] = 1.0
    positive: Annotated[float | str | None, Field(description="the label that counts as +1")] = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.name is None):
            raise ValueError("give either file or name.")
        return self


class PartitionConfig(Section):
    """How rows are split among clients."""

    kind: Annotated[
        Literal["iid", "dirichlet", "shards", "quantity"],
        Field(description='one of "iid", "dirichlet", "shards", "quantity"'),
    ]
    clients: Count
    alpha: Positive | None = None
    labels: Count | None = None
    seed: Seed = 0

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        needed = {"dirichlet": "alpha", "quantity": "alpha", "shards": "labels"}.get(self.kind)
        for name in ("alpha", "labels"):
            if (getattr(self, name) is not None) != (name == needed):
                raise ValueError(f"kind = {self.kind!r} {'needs' if name == needed else 'takes no'} {name}.")
        return self


class SyntheticConfig(Section):
    """Rows drawn at random: a ~ N(0, I), and each client's labels by a model of its own that differs by alpha."""

    clients: Count = 10
    dim: Count = 20
    samples: Count = 100
    alpha: Nonnegative = 1.0
    classes: Annotated[int, Field(ge=2, description="a whole number of at least 2")] = 3
    seed: Seed = 0


class RecipeConfig(Section):
    """How columns become features: see `fedlin.data.Recipe`, which has the same names."""

    keep: Annotated[list[str], Field(description="a list of names of columns")] | None = None
    drop: Annotated[list[str], Field(description="a list of names of columns")] = []
    scale: Annotated[
        Literal["standard", "robust", "range", "none"], Field(description='"standard", "robust", "range" or "none"')
    ] = "standard"
    fill: Annotated[Literal["mean", "median", "zero"], Field(description='"mean", "median" or "zero"')] = "mean"
    words: Annotated[list[str], Field(description="a list of names of columns")] = []
    most_words: Count = 50
    intercept: Annotated[bool, Field(description="true or false")] = True


class PrepareConfig(RecipeConfig):
    """The same, and when: `mode` "auto" prepares tables of columns only."""

    mode: Annotated[Literal["auto", "always", "none"], Field(description='"auto", "always" or "none"')] = "always"


class TestConfig(Section):
    """What is held out: a share of every client's rows, or of the clients."""

    share: Annotated[float, Field(gt=0, lt=1, description="a number in (0, 1)")]
    by: Annotated[Literal["row", "client"], Field(description='"row" or "client"')] = "row"
    seed: Seed = 0


def _mode(value: object) -> object:
    return {"mode": value} if isinstance(value, str) else value


def _share(value: object) -> object:
    return {"share": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


class RowsConfig(OracleConfig):
    """A problem whose clients hold rows, from data or drawn."""

    data: DataConfig | None = None
    partition: PartitionConfig | None = None
    synthetic: SyntheticConfig | None = None
    l2: Nonnegative = 0.0
    reduction: Annotated[Literal["mean", "sum"], Field(description='"mean" or "sum"')] = "mean"
    weights: Annotated[
        Literal["equal", "rows"], Field(description='"equal", or "rows" for weights in proportion to a client\'s rows')
    ] = "rows"
    prepare: Annotated[PrepareConfig, BeforeValidator(_mode)] = PrepareConfig(mode="auto")
    test: Annotated[TestConfig, BeforeValidator(_share)] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.data is None) == (self.synthetic is None):
            raise ValueError("give either data or synthetic.")
        if self.synthetic is not None and self.prepare.mode == "always":
            raise ValueError("synthetic rows need no preparation: leave prepare out.")
        if self.synthetic is not None and self.partition is not None:
            raise ValueError("synthetic rows belong to clients already: leave partition out.")
        if self.partition is not None and self.data is not None and self.data.client is not None:
            raise ValueError("data.client and partition exclude each other: leave one out.")
        return self

    def build(self, rows: "ClientData") -> problems.Problem:
        """The problem of these rows, by the function of `fedlin.problems` that its kind names."""
        made: problems.Problem = getattr(problems, self.kind)(rows.X, rows.y, rows.penalties(self.l2), self.reduction)
        return made


class LogisticConfig(RowsConfig):
    """Logistic regression with labels -1 and +1."""

    kind: Literal["logistic"]
    nonconvex: Nonnegative = 0.0

    def build(self, rows: "ClientData") -> problems.Problem:
        return problems.logistic(rows.X, rows.y, rows.penalties(self.l2), self.reduction, nonconvex=self.nonconvex)


class SoftmaxConfig(RowsConfig):
    """Softmax regression with labels 0, 1, ..."""

    kind: Literal["softmax"]
    classes: Annotated[int, Field(ge=2, description="a whole number of at least 2")] | None = None

    def build(self, rows: "ClientData") -> problems.Problem:
        classes = self.classes or len(rows.classes)
        return problems.softmax(rows.X, rows.y, rows.penalties(self.l2, classes), self.reduction, classes=classes)


class RegressionConfig(RowsConfig):
    """Least squares over rows; ridge regression with l2 above 0."""

    kind: Literal["regression", "ridge"]

    def build(self, rows: "ClientData") -> problems.Problem:
        return problems.regression(rows.X, rows.y, l2=rows.penalties(self.l2), reduction=self.reduction)


class PoissonConfig(RowsConfig):
    """Poisson regression of counts."""

    kind: Literal["poisson"]


PROBLEMS: dict[str, type[OracleConfig]] = {
    "least_squares": LeastSquaresConfig,
    "logistic": LogisticConfig,
    "poisson": PoissonConfig,
    "python": PythonConfig,
    "quadratic": QuadraticConfig,
    "regression": RegressionConfig,
    "ridge": RegressionConfig,
    "softmax": SoftmaxConfig,
}


class SpreadConfig(Section):
    """τ_i drawn uniformly from {low, ..., high}."""

    low: Count
    high: Count
    seed: Seed = 0


class EachConfig(Section):
    """τ_i for each client."""

    each: list[Count]


class TuningConfig(Section):
    """The step sizes tried: `count`, geometric from low/L to high/L, and further out while the best is outermost."""

    low: Positive = 0.01
    high: Positive = 10.0
    count: Annotated[int, Field(ge=2, description="a whole number of at least 2")] = 7
    rounds: Count | None = None
    extend: Annotated[int, Field(ge=0, description="a whole number of at least 0")] = 3

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.high <= self.low:
            raise ValueError(f"high = {self.high:g} is not above low = {self.low:g}.")
        return self


class PlanConfig(Section):
    """τ_i and η_i: `eta` is one step size for all, `eta_bar` means η_i = η̄/τ_i."""

    tau: Annotated[
        int | SpreadConfig | EachConfig,
        Field(
            description="a whole number of at least 1, {low = 2, high = 100, seed = 0}, or {each = [...]} "
            "with one for each client"
        ),
    ] = 1
    eta: (
        Annotated[
            float | str,
            Field(description='a number above 0, "tuned", "certified", or a theorem such as "strongly_convex"'),
        ]
        | None
    ) = None
    eta_bar: Annotated[
        float | Literal["tuned"], Field(description='a number above 0, or "tuned"')
    ] | None = None  # fmt: skip
    tuning: TuningConfig = TuningConfig()

    @model_validator(mode="after")
    def _one_step_size(self) -> Self:
        if (self.eta is None) == (self.eta_bar is None):
            raise ValueError("give either eta (the same for all clients, or a theorem) or eta_bar (η_i = η̄/τ_i).")
        return self

    @property
    def step_name(self) -> str:
        """The key that gives the step size."""
        return "eta_bar" if self.eta is None else "eta"

    @property
    def tuned(self) -> bool:
        """Whether the step size is to be searched for."""
        return "tuned" in (self.eta, self.eta_bar)


_Finite = Annotated[float, Field(description="a finite number")]
_limits: dict[str, Any] = {
    quantity.name: ((Positive if quantity.positive else _Finite) | None, None) for quantity in MEASURED
}
_limits |= dict.fromkeys(METRICS, (_Finite | None, None))
# When a run may end early: one key for every measure, and for every metric on rows held out.
StopConfig: Any = create_model("StopConfig", __base__=Section, **_limits)


class ExperimentConfig(Section):
    """The whole file; problem, plan and algorithm are checked run by run."""

    title: Annotated[str, Field(description="text")] = ""
    rounds: Count
    seeds: Annotated[
        list[Seed],
        BeforeValidator(_listed),
        Field(min_length=1, description="one or more whole numbers from 0 to 2³² - 1"),
    ] = [0]
    targets: Annotated[
        list[Positive], BeforeValidator(_listed), Field(min_length=1, description="one or more numbers above 0")
    ] = [1e-6]
    measure: Annotated[str, Field(pattern=f"^({'|'.join(MEASURES)})$", description=_MEASURES)] = "gap"
    participation: Annotated[float | list[Any], Field(description="a number in (0, 1], or a list of them")] = 1.0
    checkpoint: Count | None = None
    evaluate_every: Count = 10
    delta: Annotated[float, Field(gt=0, lt=1, description="a number in (0, 1), well below 1/clients")] = 1e-5
    layout: Annotated[Literal["auto", "client", "step"], Field(description='"auto", "client" or "step"')] = "auto"
    track: Annotated[Tracked, Field(description='"tensorboard", "mlflow" or "wandb"')] | None = None
    stop: StopConfig = StopConfig()
    metrics: Annotated[
        dict[str, str], Field(description='a table of names and functions, such as { recall = "mine.py:recall" }')
    ] = {}
    problem: Annotated[dict[str, Any], Field(description="a table [problem]")]
    plan: Annotated[dict[str, Any], Field(description="a table [plan]")]
    algorithm: Annotated[list[dict[str, Any]], Field(min_length=1, description="one or more tables [[algorithm]]")]

    @model_validator(mode="after")
    def _distinct_seeds(self) -> Self:
        twice = [seed for place, seed in enumerate(self.seeds) if seed in self.seeds[:place]]
        if twice:
            raise ValueError(f"seeds holds {twice[0]} twice, which would be the same run twice: name each seed once.")
        return self


class ParticipationConfig(Section):
    """A single run's share of clients."""

    participation: Share


class AlgorithmConfig(Section):
    """The keys of [[algorithm]] that are not the method's own arguments."""

    name: Annotated[str, Field(description="the name of a method; `fedlin algorithms` lists them")] = ""
    python: Annotated[str, Field(description='a file and a function in it, such as "mine.py:fedadam"')] = ""
    label: Annotated[str, Field(min_length=1, description="the name in tables and figures")] | None = None
    plan: Annotated[dict[str, Any], Field(description="a table of what differs from [plan]")] = {}
    aggregate: Annotated[
        str | list[str], Field(description='what is made of the uploads, such as "trimmed_mean(2)", or a list of them')
    ] = "mean"

    @model_validator(mode="after")
    def _one_method(self) -> Self:
        if bool(self.name) == bool(self.python):
            raise ValueError('give either name (a method) or python (a function of your own, "mine.py:fedadam").')
        return self

    @property
    def method(self) -> str:
        """What is to be called."""
        return self.name or self.python
