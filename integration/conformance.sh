#!/bin/bash
# The validation suite of opencontainers/runtime-tools on rt, as root and as a plain user, held against the table in
# conformance/expected. Needs root, to install what the suite is built from and to play both.
# usage: integration/conformance.sh RT
set -uo pipefail
rt=$(realpath "${1:?the path of rt}")
cd "$(dirname "$0")"
skip() {
	echo "SKIP conformance: $1"
	echo "result: integration/conformance: 0 passed, 0 failed, 1 skipped"
	exit 0
}
[ "$(id -u)" = 0 ] || skip "only root can play both callers"
[ "$(uname -m)" = x86_64 ] || skip "the suite's root file system is for x86_64"
if ! conformance/build work/conformance; then
	echo "FAIL conformance: the suite cannot be built"
	echo "result: integration/conformance: 0 passed, 1 failed, 0 skipped"
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
install -m 755 "$rt" "$work/rt"
# The suite copies its program along with the owner, so each caller has a copy.
for caller in root:0 user:23456; do
	id=${caller#*:}
	mkdir -p "$work/${caller%:*}"
	cp -r work/conformance/out "$work/${caller%:*}/suite"
	cp conformance/{run,expected} "$work/${caller%:*}"
	# Some programs leave a container: its state is not to be where that of others is.
	printf '#!/bin/sh\nexec "%s" --root "%s" "$@"\n' "$work/rt" "$work/${caller%:*}/state" >"$work/${caller%:*}/runtime"
	chmod 755 "$work/${caller%:*}/runtime"
	chown -R "$id:$id" "$work/${caller%:*}"
	# Mostly the programs sleep: both callers at once.
	setpriv --reuid "$id" --regid "$id" --clear-groups env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$work/${caller%:*}" \
		TMPDIR="$work/${caller%:*}" /usr/bin/python3 "$work/${caller%:*}/run" "$work/${caller%:*}/runtime" "${caller%:*}" >"$work/${caller%:*}.log" 2>&1 &
done
wait
for caller in root user; do
	for id in $(ls "$work/$caller/state" 2>/dev/null); do
		setpriv --reuid "$(stat -c %u "$work/$caller")" --clear-groups "$work/$caller/runtime" delete --force "$id" 2>/dev/null
	done
done
passed=0 failed=0 other=0
for caller in root user; do
	sed '/^result: /d' "$work/$caller.log"
	if read -r _ p f o < <(grep '^result: ' "$work/$caller.log"); then
		passed=$((passed + p)) failed=$((failed + f)) other=$((other + o))
	else
		echo "FAIL conformance/$caller: came to no end"
		failed=$((failed + 1))
	fi
done
echo "result: integration/conformance: $passed passed, $failed not as the table says, $other do not apply, for the reasons in the table"
[ $failed = 0 ]
