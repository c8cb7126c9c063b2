"""The mutants of a module: Cosmic Ray's, one change of an operator, a comparison, a number or a truth value each.

Left out, since no test could tell them or any test would:
- types: annotations, and unions with None;
- the words of error messages;
- shifts, bitwise operators and matrix products in place of arithmetic: nearly all raise a TypeError and flatter us;
- `is` in place of `==`: on interned strings they are the same.
"""

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

Span = tuple[tuple[int, int], tuple[int, int]]


class Mutant(NamedTuple):
    """One change of one module; `number` tells changes of one operator apart."""

    module: str
    operator: str
    number: int
    line: int
    before: str  # what stands there

    @property
    def key(self) -> str:
        return f"{self.module}:{self.line}:{self.operator}:{self.number}:{self.before}"

    def applied(self, code: str) -> str:
        """The whole module, mutated."""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.operators.provider import OperatorProvider

        return str(mutate_code(code, OperatorProvider()[self.operator](), self.number))


def left_out(code: str) -> list[Span]:
    """Where a change is one of types or of the words of an error."""
    lines = code.splitlines()

    def span(node: Any) -> Span:
        """Columns in characters, as Cosmic Ray counts; Python counts bytes."""

        def column(line: int, offset: int) -> int:
            return len(lines[line - 1].encode()[:offset].decode())

        start = node.lineno, column(node.lineno, node.col_offset)
        return start, (node.end_lineno, column(node.end_lineno, node.end_col_offset))

    nodes: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.arg | ast.AnnAssign):
            nodes.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            nodes.append(node.returns)
        elif isinstance(node, ast.Raise):
            nodes.extend(part for part in ast.walk(node) if isinstance(part, ast.JoinedStr))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and ast.unparse(node.right) == "None":
            nodes.append(node)
    return [span(node) for node in nodes if node is not None]


def telling(operator: str) -> bool:
    """Whether the operator makes mutants that say something of the tests."""
    old, _, new = operator.partition("_")[2].partition("_")
    if operator.startswith("ReplaceBinaryOperator"):
        return new in {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"}
    return not (new in {"Is", "IsNot"} and old not in {"Is", "IsNot"})


def mutants(module: str, code: str) -> Iterator[Mutant]:
    """All changes of a module that say something of its tests."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.operators.provider import OperatorProvider

    skipped, nodes = left_out(code), list(ast_nodes(get_ast(code)))
    for name in OperatorProvider():
        made = OperatorProvider()[name]
        if made.arguments() or not telling(name):
            continue
        places = [place for node in nodes for place in made().mutation_positions(node)]
        for number, (start, end) in enumerate(places):
            if not any(first <= start and end <= last for first, last in skipped):
                yield Mutant(module, name, number, start[0], code.splitlines()[start[0] - 1].strip())
