#!/bin/bash
# The validation suite of opencontainers/runtime-tools on rt, as root and as a plain user, held against the table in
# conformance/expected. Needs root, to install what the suite is built from and to play both.
# usage: integration/conformance.sh RT
set -uo pipefail
rt=$(realpath "${1:?the path of rt}")
cd "$(dirname "$0")"
. ./tap
[ "$(id -u)" = 0 ] || skip_all "only root can play both callers"
[ "$(uname -m)" = x86_64 ] || skip_all "the suite's root file system is for x86_64"
check suite 0 "" conformance/build work/conformance || { done_testing; exit; }
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
for caller in root user; do include $caller cat "$work/$caller.log"; done
done_testing
