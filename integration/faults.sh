#!/bin/bash
# One system call of rt at a time fails, is short or ends the process, in operations of rt; then the exit code, the error, the
# tree, the processes and the next run are looked at. What is found comes with the flags that repeat it.
# usage: integration/faults.sh RT [--all] [--faults N] [--seed N] [--only OPERATION] [--repeat OPERATION:CALL:KIND]
set -uo pipefail
cd "$(dirname "$0")/.."
rt=$(realpath "${1:-build/rt}")
if [ "$(uname -m)" != x86_64 ] || ldd "$rt" >/dev/null 2>&1; then
	echo "1..0 # SKIP not a static rt of x86_64"
	exit 0
fi
cargo build --locked --quiet --package rt-faults || exit
faults=$(realpath "${CARGO_TARGET_DIR:-target}/debug/faults")
# A program that is ended leaves state, and a program of one file has its state in the default place of whoever calls it.
if [ "$(id -u)" = 0 ]; then
	mkdir -p -m 700 /run/rt
	exec unshare --mount --propagation private sh -c 'mount -t tmpfs -o mode=700 state /run/rt && exec "$@"' sh "$faults" battery "$rt" "${@:2}"
fi
exec "$faults" battery "$rt" "${@:2}"
