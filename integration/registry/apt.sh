#!/bin/sh
# `apt install` in a pulled bundle, as root of one id, run by a plain user.
# Usage: apt.sh RT RT_PULL IMAGE [PACKAGE COMMAND...]   (IMAGE: Debian; its mirror must be reachable)
set -eu
rt=$(realpath "$1") pull=$(realpath "$2") image=$3
shift 3
package=${1:-openssh-client}
[ $# -gt 0 ] && shift
[ "$(id -u)" != 0 ] || echo "note: run as root; the test is meant for a plain user"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
RT_CACHE="$work/cache" "$pull" pull -q --user-map root "$image" "$work/bundle"
jq --arg script "set -e; apt-get update; apt-get install -y --no-install-recommends $package; ${*:-ssh -V}; chown 5:5 /etc/hostname" \
    '.process.args = ["/bin/sh", "-c", $script] | .process.env += ["DEBIAN_FRONTEND=noninteractive"]' \
    "$work/bundle/config.json" >"$work/config.json"
mv "$work/config.json" "$work/bundle/config.json"
"$rt" run --bundle "$work/bundle" "apt-$$" </dev/null
echo "ok   apt install $package"
