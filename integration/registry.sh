#!/bin/bash
# `rt pull` of a real Debian image, from Debian's docker-registry on loopback, as a plain user without passwd entry;
# `rt run` of what came of it; trees, archives and pushed images against umoci, skopeo and podman.
# usage: integration/registry.sh RT   (rt-pull beside it; root: makes the image and starts the registries)
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
. integration/registries
rt=$(realpath "${1:-build/rt}")
for program in docker-registry skopeo umoci podman htpasswd openssl jq; do
	command -v "$program" >/dev/null || missing="${missing:-} $program"
done
[ "$(id -u)" = 0 ] || missing="${missing:-} root"
debian=$(integration/debian) || missing="${missing:-} a-Debian-mirror"
if [ -n "${missing:-}" ]; then
	skip_all "not there:$missing"
fi
uid=23456
pids=
work=$(mktemp -d)
cleanup() {
	[ -z "$pids" ] || kill $pids 2>/dev/null
	# A user's podman keeps his namespaces by a process.
	kill "$(cat "$work/home/run/libpod/tmp/pause.pid" 2>/dev/null)" 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT
chmod 755 "$work"
mkdir "$work/bin" "$work/home" "$work/user" "$work/registry"
cp "$rt" "$(dirname "$rt")/rt-pull" "$work/bin/"
chown $uid:$uid "$work/home" "$work/user"

user() { # as the plain user, with nothing of root's environment
	(cd "$work/user" && exec setpriv --reuid $uid --regid $uid --clear-groups env -i PATH="$work/bin:$PATH" \
		HOME="$work/home" USER=jane RT_CACHE="$work/user/cache" CONTAINERS_REGISTRIES_CONF=/dev/null "$@")
}
pull() { user rt pull -q "$@"; }
run() { user rt run "$@"; }

# --- the registries: plain, with TLS, and with TLS and a password (me, secret)

cd "$work/registry"
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout ca.key -out ca.crt -subj /CN=test-ca \
	-addext basicConstraints=critical,CA:TRUE 2>/dev/null
certificate() { # NAME: one signed by the CA
	openssl req -newkey rsa:2048 -nodes -keyout "$1.key" -out "$1.csr" -subj /CN=localhost 2>/dev/null
	printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n' >"$1.ext"
	openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile "$1.ext" \
		-out "$1.crt" 2>/dev/null
}
certificate server
certificate client
htpasswd -Bbn me secret >htpasswd
registry "$PWD" plain
plain=$port pids=$pid
registry "$PWD" tls "tls: {certificate: $PWD/server.crt, key: $PWD/server.key}"
tls=$port pids="$pids $pid"
registry "$PWD" auth "tls: {certificate: $PWD/server.crt, key: $PWD/server.key}" "auth: {htpasswd: {realm: test, path: $PWD/htpasswd}}"
auth=$port pids="$pids $pid"
registry "$PWD" mutual "tls: {certificate: $PWD/server.crt, key: $PWD/server.key, clientcas: [$PWD/ca.crt]}"
mutual=$port pids="$pids $pid"
cd "$work"

# --- the image: Debian, and a layer that takes something away

umoci init --layout layout
umoci new --image layout:12
umoci insert --image layout:12 "$debian" / >/dev/null
umoci insert --image layout:12 --whiteout /usr/share/doc
umoci config --image layout:12 --config.cmd /bin/bash --config.env LANG=C.UTF-8
chmod -R a+rX layout
copy() { skopeo copy -q --insecure-policy --dest-tls-verify=false "$@"; }
check image/push 0 "" copy oci:layout:12 "docker://127.0.0.1:$plain/debian:12"

# --- what comes of it

check debian/pull 0 "^$work/user/debian\$" pull --plain-http "127.0.0.1:$plain/debian:12" debian
check debian/os-release 0 "^ID=debian\$" run ./debian -- cat /etc/os-release
check debian/whoami 0 "^jane\$" run ./debian -- whoami
check debian/id 0 "uid=$uid\(jane\) gid=$uid\(jane\)" run ./debian -- id
check debian/config 0 "^LANG=C.UTF-8\$" run ./debian -- env
check debian/default-command 0 "^/bin/bash\$" bash -c 'echo "echo \$0" | "$@"' - setpriv --reuid $uid --regid $uid \
	--clear-groups env -i HOME=/ "$work/bin/rt" run "$work/user/debian"
check debian/processes-of-the-host 0 "^yes\$" run ./debian -- sh -c "[ -d /proc/$$ ] && echo yes"
check debian/read-only 1 "Read-only" run ./debian -- touch /usr/x
check debian/own-tmp 0 "^0\$" run ./debian -- sh -c 'ls -A /tmp | wc -l'
check debian/hosts 0 "localhost" run ./debian -- cat /etc/hosts
check debian/whiteout 2 "No such file" run ./debian -- ls /usr/share/doc
check debian/not-written 0 "^\$" find "$work/user/debian" -newer "$work/user/debian/config.json" -type f
check debian/unchanged 0 "unchanged" user rt pull --plain-http "127.0.0.1:$plain/debian:12" debian
check debian/another-user 0 "^uid=23457" setpriv --reuid 23457 --regid 23457 --clear-groups env -i USER=joe \
	"$work/bin/rt" run "$work/user/debian" -- id
check debian/no-home 0 "^/tmp\$" run ./debian -- sh -c 'echo $HOME'
check home/pull 0 "" pull --plain-http --home "127.0.0.1:$plain/debian:12" home
check home/mounted 0 "^$work/home\$" run ./home -- sh -c 'cd && touch x && pwd'
check isolated/pull 0 "" pull --plain-http --profile isolated "127.0.0.1:$plain/debian:12" isolated
check isolated/id 0 "^uid=0\(root\)" run ./isolated -- id
check isolated/pids 0 "^2\$" run ./isolated -- sh -c 'echo $$'
filtered() { # BUNDLE: is it, can a Debian live with it, and is what it refuses refused?
	run "./$1" -- sh -c 'grep ^Seccomp: /proc/self/status; dpkg -l base-files >/dev/null && ls -lR /usr/share >/dev/null &&
		echo works; setarch --addr-no-randomize true 2>&1; perl -e "printf qq(bpf: %d\n), syscall(321) < 0 ? \$! + 0 : 0"'
}
check isolated/filter 0 "^Seccomp:[[:space:]]*2 works setarch: .* bpf: 1" eval 'filtered isolated | tr "\n" " "'
# Where podman's list is not installed.
own_filter() {
	unshare -m bash -c "for dir in /usr/share/containers /etc/containers; do
		[ ! -d \$dir ] || mount -t tmpfs tmpfs \$dir || exit; done
		$(declare -f user pull); work=$work uid=$uid
		pull --plain-http --profile isolated 127.0.0.1:$plain/debian:12 own"
}
check isolated/own-pull 0 "" own_filter
check isolated/own-filter 0 "^Seccomp:[[:space:]]*2 works setarch: .* bpf: 1" eval 'filtered own | tr "\n" " "'
check isolated/two-filters 0 "yes" bash -c "cmp -s $work/user/isolated/config.json $work/user/own/config.json || echo yes"

# --- root of one id: package managers

root_bundle() {
	pull --plain-http --user-map root "127.0.0.1:$plain/debian:12" root &&
		run ./root -- sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get install -yq \
			--no-install-recommends cron openssh-client rpm >/tmp/log 2>&1 || { tail /tmp/log; exit 1; }
			crontab -l 2>&1; ssh -V; chown 5:5 /etc/hostname; id -u'
}
check root/apt 0 "^OpenSSH" root_bundle
check root/apt-again 1 "no crontab for root" run ./root -- crontab -l
mkdir -p "$work/rpm/SPECS"
cat >"$work/rpm/SPECS/x.spec" <<'SPEC'
Name: x
Version: 1
Release: 1
Summary: files of several owners
License: none
BuildArch: noarch
%description
%{summary}
%install
mkdir -p %{buildroot}/opt/x
echo data >%{buildroot}/opt/x/data
%files
%attr(4755, daemon, mail) /opt/x/data
SPEC
check root/rpmbuild 0 "" rpmbuild -bb --quiet -D "_topdir $work/rpm" "$work/rpm/SPECS/x.spec"
chmod -R a+rX "$work/rpm"
check root/rpm 0 "^data\$" run -v "$work/rpm:/mnt:ro" ./root -- sh -c \
	'rpm --initdb && rpm -i --nodeps /mnt/RPMS/noarch/x-1-1.noarch.rpm && cat /opt/x/data'
dnf_bundle() { # a repository of that package, and dnf for it
	run -v "$work/rpm:/mnt:ro" ./root -- sh -c 'rpm -e x; cp -r /mnt/RPMS /srv/
		DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends dnf createrepo-c >/tmp/log 2>&1 ||
			{ tail /tmp/log; exit 1; }
		createrepo_c -q /srv/RPMS && dnf -yq --disablerepo="*" --repofrompath=own,file:///srv/RPMS --nogpgcheck \
			--releasever=1 install x && rpm -q x && stat -c %a /opt/x/data'
}
check root/dnf 0 "^4755\$" dnf_bundle

# --- how to connect

certs() { # HOST:PORT
	local dir="$work/home/.config/containers/certs.d/$1"
	mkdir -p "$dir" && cp "$work/registry/ca.crt" "$dir/" && chown -R $uid "$work/home"
}
check tls/unknown-ca 1 "certs.d" pull --retries 0 "localhost:$tls/debian:12" tls
certs "localhost:$tls"
certs "localhost:$auth"
certs "localhost:$mutual"
check tls/ca-in-certs.d 0 "" pull "localhost:$tls/debian:12" tls
check tls/unchecked-on-demand 0 "debian" user rt inspect --insecure "127.0.0.1:$tls/debian:12"
check tls/SSL_CERT_FILE 0 "amd64|arm64" user env SSL_CERT_FILE="$work/registry/ca.crt" rt inspect "localhost:$tls/debian:12"
check tls/client-certificate-missing 1 "client.cert" user rt inspect --retries 0 "localhost:$mutual/debian:12"
install -o $uid -m 600 registry/client.crt "$work/home/.config/containers/certs.d/localhost:$mutual/client.cert"
install -o $uid -m 600 registry/client.key "$work/home/.config/containers/certs.d/localhost:$mutual/client.key"
check tls/client-certificate 0 "compressed" user rt inspect "localhost:$mutual/debian:12"
check auth/no-password 1 "rt login" pull "localhost:$auth/debian:12" auth
check auth/wrong-password 1 "log in" user rt login -u me -p wrong "localhost:$auth"
check auth/login 0 "logged in" user bash -c "echo secret | rt login -u me --password-stdin localhost:$auth"
user mkdir -m 700 "$work/home/run"
check auth/podman-reads-it 0 "^me\$" user env XDG_RUNTIME_DIR="$work/home/run" podman login --get-login --authfile "$work/home/.config/containers/auth.json" "localhost:$auth"
check auth/push-elsewhere 1 "rt login" user rt push -q --retries 0 --creds me:wrong debian "localhost:$auth/mine:1"
check auth/push 0 "sha256" user rt push -q debian "localhost:$auth/mine:1"
check auth/pull 0 "" pull "localhost:$auth/debian:12" auth
check auth/logout 0 "logged out" user rt logout "localhost:$auth"
digest=$(user rt inspect --json "localhost:$tls/debian:12" | jq -r .digest)
check names/digest 0 "" pull "localhost:$tls/debian@$digest" digest
check names/no-such-tag 1 "unknown" pull "localhost:$tls/debian:none" none

# --- forms of images

check form/schema2 0 "" copy --format v2s2 oci:layout:12 "docker://127.0.0.1:$plain/debian:v2s2"
check form/schema2-pull 0 "" pull --plain-http "127.0.0.1:$plain/debian:v2s2" v2s2
check form/zstd 0 "" copy --dest-compress-format zstd oci:layout:12 "docker://127.0.0.1:$plain/debian:zstd"
check form/zstd-pull 0 "" pull --plain-http "127.0.0.1:$plain/debian:zstd" zstd
check form/layout 0 "" pull "oci:$work/layout:12" layout
check form/docker-archive 0 "" bash -c "skopeo copy -q --insecure-policy oci:layout:12 docker-archive:docker.tar:x:1 && chmod a+r docker.tar"
check form/docker-archive-pull 0 "" pull "docker-archive:$work/docker.tar" docker
check save 0 "sha256" user rt save -q debian oci-archive:saved.tar:v1
check save/skopeo 0 "" copy "oci-archive:$work/user/saved.tar:v1" "docker://127.0.0.1:$plain/saved:1"
check save/docker-archive 0 "sha256" user rt save -q debian docker-archive:docker.saved.tar:team/saved:2
podman_() { podman --root "$work/store" --runroot "$work/run" --storage-driver vfs "$@"; }
check save/podman 0 "" podman_ load -q -i "$work/user/saved.tar"
check save/podman-docker-archive 0 "team/saved:2" podman_ load -q -i "$work/user/docker.saved.tar"
check save/podman-config 0 "^/bin/bash LANG=C.UTF-8 " podman_ image inspect \
	--format '{{join .Config.Cmd " "}} {{join .Config.Env " "}} ' team/saved:2
check save/skopeo-schema2 0 "" copy --format v2s2 "oci-archive:$work/user/saved.tar:v1" "docker://127.0.0.1:$plain/saved:v2s2"

# --- to the registries, and back with podman and skopeo

push() { user rt push "$@"; }
check push/bundle 0 "^sha256:[0-9a-f]{64}\$" push -q --plain-http debian "docker://127.0.0.1:$plain/pushed:1"
pushed=$(user rt inspect --plain-http --json "127.0.0.1:$plain/pushed:1" | jq -r .digest)
check push/again 0 "0 B sent" push --plain-http debian "127.0.0.1:$plain/pushed:2"
check push/archive 0 "^$pushed\$" push -q --plain-http oci-archive:saved.tar:v1 "127.0.0.1:$plain/pushed:3"
check push/skopeo 0 "^$pushed\$" skopeo inspect --tls-verify=false --format '{{.Digest}}' "docker://127.0.0.1:$plain/pushed:3"
check push/podman 0 "" podman_ pull -q --tls-verify=false "127.0.0.1:$plain/pushed:1"
podman_tree() { # the tree of a pushed image, as podman unpacks it, is the bundle's
	local dir
	dir=$(podman_ image mount "127.0.0.1:$plain/pushed:1") && diff <(cd "$dir" && find . -mindepth 1 -printf '%y %m %U %p %l\n' | sort) \
		<(cd "$work/user/debian/rootfs" && find . -mindepth 1 -printf '%y %m 0 %p %l\n' | sort) && echo same
}
check push/podman-tree 0 "^same\$" podman_tree
check push/pulled 0 "" pull --plain-http "127.0.0.1:$plain/pushed:1" pulled
check push/runs 0 "^ID=debian\$" run ./pulled -- cat /etc/os-release
check push/from-podman 0 "" podman_ push -q --tls-verify=false "127.0.0.1:$plain/pushed:1" "127.0.0.1:$plain/podman:1"
check push/pulled-from-podman 0 "" pull --plain-http "127.0.0.1:$plain/podman:1" from-podman
check push/same-config 0 "^same\$" bash -c "config() { jq 'del(.annotations[\"rt.image.name\", \"rt.image.digest\",
	\"rt.image.resolved\", \"rt.image.bytes\"])' $work/user/\$1/config.json; }; diff <(config debian) <(config from-podman) && echo same"
check push/mounted 0 "taken over" push --plain-http pulled "127.0.0.1:$plain/other:1"
check push/many-layers 0 "sha256" push -q --plain-http "oci:$work/layout:12" "127.0.0.1:$plain/layers:1"
check push/many-layers-skopeo 0 "^2\$" eval "skopeo inspect --tls-verify=false docker://127.0.0.1:$plain/layers:1 | jq '.Layers | length'"
# A proxy that ends its first two connections after so many bytes. This registry does not tell how much it has of a broken
# upload, so all of it is sent again; pull/tests has one that tells.
cat >"$work/cutter.py" <<'PYTHON'
import itertools, socket, sys, threading
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(16)
print(listener.getsockname()[1], flush=True)
def relay(one, other, most):
    try:
        while most > 0 and (data := one.recv(min(65536, most))):
            other.sendall(data)
            most -= len(data)
    except OSError:
        pass
    for side in one, other:
        try:
            side.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        side.close()
for number in itertools.count():
    client = listener.accept()[0]
    most = 9_000_000 if number < 2 else 1 << 40
    server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=relay, args=(client, server, most), daemon=True).start()
    threading.Thread(target=relay, args=(server, client, most), daemon=True).start()
PYTHON
exec 4< <(exec python3 "$work/cutter.py" "$plain")
pids="$pids $!"
read -r cut <&4
check push/broken-connections 0 "sha256" push -q --plain-http debian "127.0.0.1:$cut/cut:1"
check push/complete 0 "" pull --plain-http "127.0.0.1:$plain/cut:1" cut

# --- the same tree as umoci's and podman's, but for what the profile needs

listing() { # DIR: type, mode, size, time and link of everything; directories have no size
	(cd "$1" && find . -mindepth 1 \( -type d -printf '%y %m %p\n' -o -type l -printf '%y %l %p\n' -o \
		-type f -printf '%y %m %s %Ts %p\n' -o -printf '%y %m %p\n' \)) |
		grep -vE ' \./(etc/(hosts|resolv.conf|hostname|localtime|machine-id|apt/apt.conf.d/zz-one-user)|dev/.*|proc|sys|tmp|run|dev)$' | sort
}
contents() { (cd "$1" && find usr/bin usr/lib etc -type f ! -path 'etc/*hostname' ! -path etc/hosts ! -path etc/localtime \
	! -path etc/machine-id ! -path etc/resolv.conf ! -path etc/apt/apt.conf.d/zz-one-user -print0 2>/dev/null | sort -z | xargs -0 sha256sum); }
same() { # ONE OTHER
	diff <(listing "$1") <(listing "$2") && diff <(contents "$1") <(contents "$2")
}
check tree/private 0 "" pull --private --plain-http "127.0.0.1:$plain/debian:12" private
check tree/umoci 0 "" user umoci unpack --rootless --image "$work/layout:12" umoci
check tree/umoci-same 0 "^\$" same "$work/user/umoci/rootfs" "$work/user/private/rootfs"
check tree/podman 0 "" podman_ pull -q --tls-verify=false "127.0.0.1:$plain/debian:12"
mounted=$(podman_ image mount "127.0.0.1:$plain/debian:12" 2>/dev/null)
check tree/podman-same 0 "^\$" same "$mounted" "$work/user/private/rootfs"
podman_ image unmount --all >/dev/null 2>&1

check podman-source 0 "" env XDG_RUNTIME_DIR= HOME="$work" CONTAINERS_STORAGE_CONF="$work/storage.conf" bash -c "
	printf '[storage]\ndriver = \"vfs\"\ngraphroot = \"%s\"\nrunroot = \"%s\"\n' $work/store $work/run >$work/storage.conf
	$work/bin/rt pull -q podman:127.0.0.1:$plain/debian:12 $work/from-podman && test -x $work/from-podman/rootfs/bin/bash"
check cache/verify 0 "all blobs are right" user rt cache verify
check nothing-left 0 "^\$" find "$work/user" -maxdepth 3 \( -name '*.partial-*' -o -path '*/leases/*' -o -path '*/cache/partial/*' \)
done_testing
