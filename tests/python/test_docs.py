"""The blocks of docs/python.md, docs/howto.md and README.md run, one after the other, and print what stands there. Those that import what is not installed are
left out."""
import contextlib
import importlib.util
import io
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def blocks(page):
    """(line, code, what it prints or None) of each block of Python."""
    text = page.read_text()
    found = []
    for m in re.finditer(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", text, re.M | re.S):
        found.append((text[: m.start()].count("\n") + 2, m[1], m[2]))
    return found


def missing(code):
    names = set(re.findall(r"^(?:import|from) (\w+)", code, re.M))
    names |= {name for name in ("torch", "jax") if f"xhat.{name}" in code}
    return sorted(name for name in names if importlib.util.find_spec(name) is None)


@pytest.mark.parametrize("name, least", [("docs/python.md", 3), ("docs/howto.md", 1), ("README.md", 1)])
def test_what_the_page_shows_is_what_happens(name, least, monkeypatch):
    monkeypatch.chdir(ROOT)
    page, names, left_out = ROOT / name, {}, []
    assert len(blocks(page)) >= least
    for line, code, wanted in blocks(page):
        if missing(code):
            left_out.append(f"{line}: no {', '.join(missing(code))}")
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
        assert printed.getvalue() == (wanted or ""), f"{page}:{line}"
    if left_out:
        pytest.skip(f"the others hold; left out: {'; '.join(left_out)}")
