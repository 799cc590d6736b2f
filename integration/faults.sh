#!/bin/bash
# One system call of rt at a time fails, is short or ends the process, in operations of rt; then the exit code, the error, the
# tree, the processes and the next run are looked at. What is found comes with the flags that repeat it.
# usage: integration/faults.sh RT [--all] [--faults N] [--seed N] [--only OPERATION] [--repeat OPERATION:CALL:KIND]
set -uo pipefail
cd "$(dirname "$0")/.."
rt=$(realpath "${1:-build/rt}")
if [ "$(uname -m)" != x86_64 ] || ldd "$rt" >/dev/null 2>&1; then
	echo "SKIP faults: not a static rt of x86_64"
	exit 0
fi
cargo build --locked --quiet --package rt-faults || exit
exec "${CARGO_TARGET_DIR:-target}/debug/faults" battery "$rt" "${@:2}"
