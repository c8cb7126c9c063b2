"""A table of a file checked against its model; an error names every wrong key in the file's own terms."""

from typing import Annotated, Any, TypeGuard, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fedlin.checks import unknown_name
from fedlin.errors import ArgumentError
from fedlin.experiments.config import Section, TomlTable

S = TypeVar("S", bound=Section)


def checked(model: type[S], raw: TomlTable, path: tuple[str, ...] = ()) -> S:
    """`raw` as the model, or an error that names every key that is wrong, what it holds and what is allowed.

    >>> from fedlin.experiments.config import SpreadConfig
    >>> checked(SpreadConfig, {"low": 2, "hihg": 5}, ("plan", "tau"))
    Traceback (most recent call last):
        ...
    fedlin.errors.ArgumentError: plan.tau.high is missing: give a whole number of at least 1, below 2³¹.
    plan.tau: no key is called 'hihg': did you mean 'high'? Known: high, low, seed.
    """
    try:
        return model.model_validate(dict(raw))
    except ValidationError as error:
        lines = dict.fromkeys(_line(model, problem, path) for problem in error.errors())
        raise ArgumentError("\n".join(lines)) from error


def _line(model: type[Section], error: ErrorDetails, path: tuple[str, ...]) -> str:
    owner, field, keys = _locate(model, error["loc"])
    where = ".".join((*path, *keys))
    if error["type"] == "extra_forbidden" and field is None:
        *parents, key = (*path, *keys)
        sentence = unknown_name("key", key, owner.model_fields)
        return f"{'.'.join(parents)}: {sentence}" if parents else sentence
    if error["type"] == "value_error":
        return f"{where}: {error['ctx']['error']}"
    if error["type"] == "missing" and keys == error["loc"]:
        return f"{where} is missing: give {_allowed(field)}."
    return f"{where} = {error['input']!r} is not allowed: give {_allowed(field) or error['msg']}."


def _locate(
    model: type[Section], loc: tuple[int | str, ...]
) -> tuple[type[Section], FieldInfo | None, tuple[str, ...]]:
    """The table, the field and the keys an error is about; what Pydantic adds for its unions is left out."""
    field: FieldInfo | None = None
    keys: tuple[str, ...] = ()
    for part in loc:
        fields = model.model_fields
        if part not in fields:
            # Inside a field the rest of the place is Pydantic's own; at a table it is a key nobody knows.
            return (model, field, keys) if field is not None else (model, None, (*keys, str(part)))
        keys = (*keys, str(part))
        field = fields[str(part)]
        inner = next((kind for kind in _kinds(field.annotation) if _is_section(kind)), None)
        if inner is None or len(_kinds(field.annotation)) > 1:
            continue
        model, field = inner, None
    return model, field, keys


def _kinds(annotation: object) -> list[Any]:
    """The members of a union without what annotates them, None left out."""
    members = (annotation,) if get_origin(annotation) in (None, Annotated, list, dict) else get_args(annotation)
    plain = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in members]
    return [kind for kind in plain if kind is not type(None)]


def _is_section(kind: object) -> TypeGuard[type[Section]]:
    return isinstance(kind, type) and issubclass(kind, Section)


def _allowed(field: FieldInfo | None) -> str:
    """The description, which stands on the field or on the member of its union."""
    if field is None:
        return "a table"
    if field.description:
        return str(field.description)
    for kind in get_args(field.annotation):
        for extra in getattr(kind, "__metadata__", ()):
            if getattr(extra, "description", None):
                return str(extra.description)
    return ""
