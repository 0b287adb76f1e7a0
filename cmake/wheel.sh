#!/usr/bin/env bash
# cmake/wheel.sh [FOLDER]: builds a wheel of the Python package into FOLDER (default: dist) for the python3 that is first in PATH, by
# pyproject.toml, with tools of known hashes (python/requirements-build.txt). `pip install .` does the same and installs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake/setup.sh
tools=.deps/python-build
if [[ ! -d $tools ]]; then
  temporary=$(mktemp -d .deps/python.XXXXXX)
  trap 'rm -rf "$temporary"' EXIT
  python3 -m pip --disable-pip-version-check install --quiet --root-user-action=ignore --no-deps --only-binary=:all: --require-hashes --target "$temporary/packages" \
    -r python/requirements-build.txt </dev/null
  mv -T "$temporary/packages" "$tools"
fi
PYTHONPATH=$PWD/$tools python3 -m pip --disable-pip-version-check wheel --no-build-isolation --no-deps --wheel-dir "${1:-dist}" . </dev/null
