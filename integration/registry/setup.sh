#!/bin/sh
# Starts Debian's docker-registry on loopback three times: plain (5055), with TLS (5056), and with
# TLS and a password (5057: me, secret). `setup.sh DIR` prints their pids; kill them to stop.
set -eu
dir=${1:?usage: setup.sh DIR}
for program in docker-registry skopeo umoci podman openssl htpasswd; do
    command -v "$program" >/dev/null || missing="${missing:-} $program"
done
if [ -n "${missing:-}" ]; then
    apt-get install -y --no-install-recommends docker-registry skopeo umoci podman openssl apache2-utils >&2
fi
mkdir -p "$dir"
cd "$dir"
[ -f ca.crt ] || openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout ca.key -out ca.crt \
    -subj /CN=test-ca -addext basicConstraints=critical,CA:TRUE 2>/dev/null
[ -f server.crt ] || {
    openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost 2>/dev/null
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n' >server.ext
    openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
        -extfile server.ext -out server.crt 2>/dev/null
}
htpasswd -Bbn me secret >htpasswd
registry() {
    name=$1 port=$2
    {
        printf 'version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s/data}}\n' "$PWD"
        printf 'http:\n  addr: 127.0.0.1:%s\n' "$port"
        [ "$name" = plain ] || printf '  tls: {certificate: %s/server.crt, key: %s/server.key}\n' "$PWD" "$PWD"
        [ "$name" != auth ] || printf 'auth: {htpasswd: {realm: test, path: %s/htpasswd}}\n' "$PWD"
    } >"$name.yml"
    docker-registry serve "$name.yml" >"$name.log" 2>&1 &
    echo $!
}
registry plain 5055
registry tls 5056
registry auth 5057
