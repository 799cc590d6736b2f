#!/bin/sh
# rt-pull against Debian's docker-registry, skopeo, umoci and podman.
# Usage: test.sh RT_PULL [IMAGE_LAYOUT:TAG]; without an image one is made by debootstrap.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rt=$(realpath "${1:?usage: test.sh RT_PULL}")
work=$(mktemp -d)
pids=$(sh "$here/setup.sh" "$work/registry")
trap 'kill $pids; rm -rf "$work"' EXIT
cd "$work"
export RT_CACHE="$work/cache" HOME="$work/home" CONTAINERS_REGISTRIES_CONF=/dev/null
mkdir -p "$HOME"
unset XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_CACHE_HOME REGISTRY_AUTH_FILE || true
failed=0
check() {
    name=$1
    shift
    if "$@" >"$work/out" 2>&1; then echo "ok   $name"; else
        echo "FAIL $name"
        sed 's/^/     /' "$work/out"
        failed=$((failed + 1))
    fi
}
fails_with() {
    text=$1
    shift
    ! "$@" >"$work/said" 2>&1 && grep -q "$text" "$work/said" || { cat "$work/said"; false; }
}
image=${2:-}
if [ -z "$image" ]; then
    debootstrap --variant=minbase bookworm tree "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >debootstrap.log
    umoci init --layout layout
    umoci new --image layout:t
    umoci insert --image layout:t tree / >/dev/null
    umoci insert --whiteout --image layout:t /usr/share/doc
    umoci config --image layout:t --config.cmd /bin/bash
    image=layout:t
fi
sleep 1
skopeo copy -q --insecure-policy --dest-tls-verify=false "oci:$image" docker://127.0.0.1:5055/debian:12
check "plain HTTP" "$rt" pull -q --plain-http 127.0.0.1:5055/debian:12 plain
check "the command is there" test -x plain/rootfs/bin/bash
check "unchanged" "$rt" pull --plain-http 127.0.0.1:5055/debian:12 plain
check "TLS with an unknown CA is refused" fails_with certs.d "$rt" pull --retries 0 localhost:5056/debian:12 tls
mkdir -p "$HOME/.config/containers/certs.d/localhost:5056" "$HOME/.config/containers/certs.d/localhost:5057"
cp registry/ca.crt "$HOME/.config/containers/certs.d/localhost:5056/"
cp registry/ca.crt "$HOME/.config/containers/certs.d/localhost:5057/"
check "TLS with a CA in certs.d" "$rt" pull -q localhost:5056/debian:12 tls
check "TLS unchecked on demand" "$rt" pull -q --insecure 127.0.0.1:5056/debian:12 unchecked
check "SSL_CERT_FILE" env SSL_CERT_FILE="$work/registry/ca.crt" "$rt" inspect localhost:5056/debian:12
check "without a password: refused" fails_with "rt login" "$rt" pull localhost:5057/debian:12 auth
check "a wrong password" fails_with "log in" "$rt" login -u me -p wrong localhost:5057
check "login" sh -c "echo secret | '$rt' login -u me --password-stdin localhost:5057"
check "Basic" "$rt" pull -q localhost:5057/debian:12 auth
check "podman reads the credentials" podman login --get-login --authfile "$HOME/.config/containers/auth.json" localhost:5057
check "logout" "$rt" logout localhost:5057
check "by digest" sh -c "'$rt' pull -q localhost:5056/debian@\$('$rt' inspect --json localhost:5056/debian:12 | jq -r .digest) digest"
check "no such tag" fails_with unknown "$rt" pull localhost:5056/debian:none none
check "schema 2" sh -c "skopeo copy -q --insecure-policy --dest-tls-verify=false --format v2s2 'oci:$image' docker://127.0.0.1:5055/debian:v2s2 && '$rt' pull -q --plain-http 127.0.0.1:5055/debian:v2s2 v2s2"
check "zstd" sh -c "skopeo copy -q --insecure-policy --dest-tls-verify=false --dest-compress-format zstd 'oci:$image' docker://127.0.0.1:5055/debian:zstd && '$rt' pull -q --plain-http 127.0.0.1:5055/debian:zstd zstd"
check "save" "$rt" save -q plain oci-archive:saved.tar:v1
check "skopeo copies what was saved" skopeo copy -q --insecure-policy --dest-tls-verify=false oci-archive:saved.tar:v1 docker://127.0.0.1:5055/saved:1
check "podman loads what was saved" podman --root "$work/store" --runroot "$work/run" --storage-driver vfs load -q -i saved.tar
check "verify" "$rt" cache verify
check "nothing is left" sh -c '! ls -d *.partial-* cache/leases/* cache/partial/* 2>/dev/null'
[ $failed = 0 ] || exit 1
