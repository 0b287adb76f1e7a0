#!/usr/bin/env bash
# cmake/build.sh PRESET [TARGET...]: configures and builds, quietly. Everything, if no target is named.
# XHAT_WERROR=ON or OFF and XHAT_SANITIZE_SCOPES=ON or OFF (cmake/options.cmake) are remembered by the build folder until they are set again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
shift
folder=build-$preset
[[ $preset == release ]] && folder=build # as in CMakePresets.json

mkdir -p .deps
exec 9>".deps/lock-$preset"
flock 9 # ninja does not bear a second ninja in its folder

log=.deps/configure-$preset.log
if ! cmake --preset "$preset" ${XHAT_WERROR:+-DXHAT_WERROR="$XHAT_WERROR"} \
  ${XHAT_SANITIZE_SCOPES:+-DXHAT_SANITIZE_SCOPES="$XHAT_SANITIZE_SCOPES"} >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  exit 1
fi

[[ -e $folder/.ninja_log ]] || echo "build: $preset, for the first time: this takes a few minutes" >&2
build=(cmake --build --preset "$preset" ${1:+--target "$@"})
if [[ -t 2 ]]; then
  "${build[@]}" >&2 </dev/null
else # a log: only warnings and errors
  "${build[@]}" -- --quiet 2>&1 </dev/null | { grep -v '^ninja: no work to do' || true; } >&2
fi
