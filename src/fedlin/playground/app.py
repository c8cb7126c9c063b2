"""The page: controls, a line on what came out, and the curves. `fedlin playground` hands this file to marimo."""

import marimo

app = marimo.App(width="medium", app_title="fedlin playground", html_head_file="head.html")

with app.setup:
    from collections.abc import Sequence
    from html import escape
    from typing import Any

    import marimo as mo

    from fedlin.playground.sliders import AXES, MEASURES, MEMORIES, MESSAGES, METHODS, Sliders
    from fedlin.playground.study import plot, study

    SHARES = [5, 10, 25, 50, 75, 100]  # per cent; few of them, since each is a program of its own


@app.cell
def _() -> None:
    about = "Linear regression over clients that want different models. Move a slider, and all is run again."
    mo.md(f"# fedlin playground\n\n{about}")


@app.cell
def _() -> tuple[mo.ui.dictionary]:
    def slider(label: str, steps: Sequence[float], value: float) -> mo.ui.slider:
        return mo.ui.slider(steps=steps, value=value, label=label, show_value=True, full_width=True)

    def choice(label: str, options: Sequence[str] | dict[str, str]) -> mo.ui.dropdown:
        return mo.ui.dropdown(options, value=next(iter(options)), label=label, full_width=True)

    controls = mo.ui.dictionary(
        {
            "method": choice("method", tuple(METHODS)),
            "step": slider("step size: 1 the theorem's, 32 certified", [2.0**power for power in range(-2, 9)], 1.0),
            "local_steps": slider("local steps, at most", [1, 2, 5, 10, 20, 50, 100], 20),
            "clients": slider("clients", [2, 5, 10, 20, 50], 10),
            "alpha": slider("heterogeneity α", [0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0], 10.0),
            "up": slider("entries sent up, %", SHARES, 100),
            "down": slider("entries sent down, %", SHARES, 100),
            "messages": choice("compressed", MESSAGES),
            "memory": choice("the sender remembers", tuple(MEMORIES)),
            "measure": choice("vertical axis", {name: key for key, name in MEASURES.items()}),
            "axis": choice("horizontal axis", {name: key for key, name in AXES.items()}),
        }
    )
    return (controls,)


@app.cell
def _(controls: mo.ui.dictionary) -> None:
    def column(title: str, *names: str) -> mo.Html:
        stack = mo.vstack([mo.md(f"**{title}**"), *(controls[name] for name in names)])
        return stack.style(min_width="13rem")  # on a phone one column stands below the other

    columns = [
        column("Method", "method", "step", "local_steps"),
        column("Clients", "clients", "alpha"),
        column("FedLin's compression", "up", "down", "messages", "memory"),
        column("Picture", "measure", "axis"),
    ]
    mo.hstack(columns, widths="equal", wrap=True, align="start", gap=2)


@app.cell
def _(controls: mo.ui.dictionary) -> None:
    chosen: dict[str, Any] = controls.value
    result = study(Sliders(**chosen))
    drawn = mo.ui.plotly(plot(result), config={"displayModeBar": False})
    mo.vstack([mo.callout(mo.Html(escape(result.summary))), drawn, mo.Html(escape(result.explanation))])
