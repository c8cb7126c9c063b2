"""Hostile bytes are answered or refused by our own errors, wherever bytes are read."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

import fedlin
from decoders import NAMES, TARGETS, check, corpus, seeds

TOOL = Path(__file__).parent / "tools" / "fuzz_decoders.py"
SECONDS = 10
NASTY: list[Any] = [None, True, -1, 0, 1e308, float("nan"), float("inf"), 1 << 80, "", "\ud800", [], {}, [[]], {"a": 1}]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable()  # a site logs what it refuses
    yield
    logging.disable(logging.NOTSET)


def test_what_is_right_is_read() -> None:
    """So that the others are refused for what is wrong with them."""
    refused = set()
    for data in seeds():
        try:
            TARGETS[NAMES[data[0]]](data[1:])
        except fedlin.FedLinError:
            refused.add(NAMES[data[0]])
    # Certificates need an authority, a state and a request a key, and a server's checkpoint more than one array.
    assert refused <= {"certificate", "introduction", "request", "checkpoint", "reply"}


def test_what_earlier_searches_found_is_refused() -> None:
    for data in corpus():
        check(data)


def changed(value: Any) -> Iterator[Any]:
    """The value with each of its parts in turn replaced by something else, or left out."""
    yield from NASTY
    if isinstance(value, dict):
        for key in value:
            rest = {other: one for other, one in value.items() if other != key}
            yield rest
            yield from ({**rest, key: one} for one in changed(value[key]))
    elif isinstance(value, list):
        for number in range(len(value)):
            yield from ([*value[:number], one, *value[number + 1 :]] for one in changed(value[number]))


def test_text_of_the_right_form_with_a_wrong_part_is_refused() -> None:
    tried = 0
    for data in seeds():
        for number, line in enumerate(lines := data[1:].split(b"\n")):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            for other in changed(value):
                text = json.dumps(other).encode()
                check(data[:1] + b"\n".join([*lines[:number], text, *lines[number + 1 :]]))
                tried += 1
    assert tried > 1000


def test_bytes_that_are_cut_off_changed_or_much_too_deep_are_refused() -> None:
    rng = np.random.default_rng(0)
    for data in seeds():
        for cut in {1, 2, len(data) // 2, len(data) - 1}:
            check(data[:cut])
        for _ in range(20):
            damaged = bytearray(data)
            for place in rng.integers(1, len(data) + 1, 3):
                damaged[place % len(data) or 1 : (place % len(data) or 1) + 1] = rng.bytes(int(rng.integers(0, 3)))
            check(data[:1] + bytes(damaged[1:]))
        check(data[:1] + b'{"a":' * 100_000)
        check(data[:1] + b"[" * 100_000)
        check(data[:1] + b"a = " + b"[" * 100_000)


@pytest.mark.long  # what it tries depends on the time it has
def test_a_search_guided_by_coverage_finds_nothing(tmp_path: Path) -> None:
    """For some seconds here; `make fuzz` looks longer."""
    pytest.importorskip("atheris")
    command = [sys.executable, str(TOOL), str(SECONDS), "--found", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300, env=os.environ)
    assert done.returncode == 0, done.stderr[-3000:]
    (tried,) = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
    assert int(tried) > 500
    assert not list(tmp_path.iterdir())
