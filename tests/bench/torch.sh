# Sourced by scripts that measure beside PyTorch: the programs of $BIN [bin] on PATH, and `python`, of an environment that has torch: $VENV
# [/tmp/llmutils-bench], made when absent.
here=${0%/*}
venv=${VENV:-/tmp/llmutils-bench}
PATH=$(cd "${BIN:-$here/../../bin}" && pwd):$PATH
if [[ ! -x $venv/bin/python ]]; then
    python3 -m venv "$venv" >&2
    "$venv/bin/pip" install --quiet torch numpy >&2
fi
python() { "$venv/bin/python" "$@"; }
