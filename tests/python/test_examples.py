"""The programs in examples/python: each fails if what it claims does not hold."""
import importlib.util
import pathlib
import runpy

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "python"


@pytest.mark.parametrize("name", sorted(p.name for p in FOLDER.glob("*.py")))
def test_example(name):
    text = (FOLDER / name).read_text()
    for library in ("torch", "jax"):
        if f"import {library}\n" in text and importlib.util.find_spec(library) is None:
            pytest.skip(f"no {library}")
    runpy.run_path(str(FOLDER / name), run_name="__main__")


def test_the_page_lists_them_all():
    page = (FOLDER / "README.md").read_text()
    for path in FOLDER.glob("*.py"):
        assert f"[{path.name}]({path.name})" in page
