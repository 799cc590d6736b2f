#!/bin/bash
# A day of a user who has no root, no passwd entry and one id: commands of docs/compare.md and docs/flags.md, one after the
# other. Images come from and go to Debian's docker-registry on loopback.
# integration/mpi.sh has the part of the day that is about the host's MPI.
# usage: integration/day.sh RT   (rt-pull and rt-image beside it; root: makes the image, starts the registry, becomes the user)
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
. integration/registries
rt=$(realpath "${1:-build/rt}")
[ "$(id -u)" = 0 ] && integration/packages docker-registry skopeo umoci python3 jq
for program in docker-registry skopeo umoci python3 jq; do
	command -v "$program" >/dev/null || missing="${missing:-} $program"
done
[ "$(id -u)" = 0 ] || missing="${missing:-} root"
debian=$(integration/debian) || missing="${missing:-} a-Debian-mirror"
if [ -n "${missing:-}" ]; then
	skip_all "not there:$missing"
fi
uid=23461
pids=
work=$(mktemp -d)
trap '[ -z "$pids" ] || kill $pids 2>/dev/null; rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work"/{bin,home,user,state,registry}
cp "$rt" "$(dirname "$rt")"/rt-{pull,image} "$work/bin/"
chmod 700 "$work/state"
chown $uid:$uid "$work"/{home,user,state}

# user [NAME=VALUE...] COMMAND...: with a login's environment and nothing else
user() {
	(cd "$work/user" && exec setpriv --reuid $uid --regid $uid --clear-groups env -i PATH="$work/bin:$PATH" HOME="$work/home" \
		USER=jane XDG_RUNTIME_DIR="$work/state" CONTAINERS_REGISTRIES_CONF="$work/registries.conf" "$@")
}
run() { user rt run "$@"; }

# --- a registry with an image: Debian, with an entrypoint, arguments and a variable

registry "$work/registry" plain
pids=$pid
registry=127.0.0.1:$port
printf '[[registry]]\nlocation = "%s"\ninsecure = true\n' "$registry" >"$work/registries.conf"
printf '#!/bin/sh\necho "greet: $*"\n' >"$work/greet"
chmod 755 "$work/greet"
cd "$work" || exit
umoci init --layout layout
umoci new --image layout:1
umoci insert --image layout:1 "$debian" / >/dev/null
umoci insert --image layout:1 greet /usr/bin/greet
umoci config --image layout:1 --config.entrypoint greet --config.cmd everybody --config.env OF_IMAGE=yes \
	--config.env LANG=C.UTF-8 --config.label team=mine
check image 0 "" skopeo copy -q --insecure-policy --dest-tls-verify=false oci:layout:1 "docker://$registry/team/tools:1"

# --- get it

check inspect 0 "^entrypoint +greet\$" user rt inspect "$registry/team/tools:1"
check pull 0 "^$work/user/tools\$" user rt pull -q "$registry/team/tools:1" tools
check pull/again 0 "unchanged" user rt pull "$registry/team/tools:1" tools
check cache 0 "blobs in" user rt cache list

# --- run it

check entrypoint 0 "^greet: everybody\$" run ./tools
check entrypoint/arguments 0 "^greet: one two\$" run ./tools -- one two
check entrypoint/other 0 "^[0-9]+\$" run --entrypoint id ./tools -- -u
check entrypoint/none 0 "^ID=debian\$" run --entrypoint "" ./tools -- cat /etc/os-release
shell() { run --entrypoint "" "$@"; }
check whoami 0 "^jane $uid\$" shell ./tools -- sh -c 'echo $(whoami) $(id -u)'
# typed COMMAND...: with a terminal of 77 columns, at which somebody types
cat >"$work/typed.py" <<'PYTHON'
import fcntl, os, pty, signal, struct, sys, termios
signal.alarm(30)
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 21, 77, 0, 0))
seen, typed = b"", False
try:
    while data := os.read(terminal, 4096):
        seen += data
        # As a person does: at the prompt. What is typed before, a program that sets up a terminal may throw away.
        if not typed and seen.endswith(b"$ "):
            typed = os.write(terminal, b"stty size; tty; echo still $((40 + 2)); exit 5\n")
except OSError:
    pass
sys.stdout.buffer.write(seen.replace(b"\r", b""))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PYTHON
typed() { user TERM=dumb python3 "$work/typed.py" "$@"; }
check terminal 5 "^still 42\$" typed rt run -t --entrypoint "" ./tools -- bash --norc
check terminal/size 5 "^21 77\$" typed rt run -t --entrypoint "" ./tools -- bash --norc
check terminal/name 5 "^/dev/(pts/[0-9]+|console)\$" typed rt run -t --entrypoint "" ./tools -- bash --norc
check exit-code 7 "" shell ./tools -- sh -c 'exit 7'
check bind 0 "^greet: bound\$" shell -v "$work/greet:/mnt/greet:ro" ./tools -- /mnt/greet bound
check home 0 "^$work/home\$" shell --home ./tools -- sh -c 'cd && pwd && echo kept >note'
check home/kept 0 "^kept\$" cat "$work/home/note"

# --- the environment, as srun gives it to a task

srun() { user SLURM_JOB_ID=42 SLURM_PROCID=3 OMP_NUM_THREADS=4 LANG=de_DE "$@"; }
check environment 0 "^42 3 4\$" srun rt run --entrypoint "" ./tools -- sh -c 'echo $SLURM_JOB_ID $SLURM_PROCID $OMP_NUM_THREADS'
check environment/image-wins 0 "^C.UTF-8 yes\$" srun rt run --entrypoint "" ./tools -- sh -c 'echo $LANG $OF_IMAGE'
check environment/flag-wins 0 "^fr\$" srun rt run --entrypoint "" -e LANG=fr ./tools -- sh -c 'echo $LANG'
check environment/clear 0 "^none\$" srun rt run --entrypoint "" --clear-env ./tools -- sh -c 'echo ${SLURM_PROCID:-none}'

# --- a container that stays: look into it, end it

background() { user rt run -d --entrypoint "" -b tools web -- sleep 600 </dev/null >/dev/null 2>&1; }
check detached 0 "" background
check list 0 "web" user rt list
check exec 0 "^ID=debian\$" user rt exec web cat /etc/os-release
check delete 0 "" user rt delete --force web
check delete/gone 0 "^\$" user rt list -q

# --- install something: for one run, in a directory of one's own, in a bundle of one's own

check read-only 1 "Read-only file system" shell ./tools -- touch /usr/made
check writable 0 "^made\$" shell --writable ./tools -- sh -c 'touch /usr/made && echo made'
check writable/thrown-away 2 "No such file" shell ./tools -- ls /usr/made
install() { # FLAGS... BUNDLE
	shell "$@" -- sh -c 'apt-get -q update >/tmp/log 2>&1 && DEBIAN_FRONTEND=noninteractive \
		apt-get install -yq --no-install-recommends openssh-client man-db tzdata >>/tmp/log 2>&1 || { tail /tmp/log; exit 1; }; ssh -V'
}
check overlay/install 0 "^OpenSSH" install --as-root --overlay changes ./tools
check overlay/kept 0 "^OpenSSH" shell --overlay changes ./tools -- ssh -V
check overlay/image-as-it-was 1 "ssh" shell ./tools -- ssh -V
check root/pull 0 "" user rt pull -q --user-map root "$registry/team/tools:1" build
check root/install 0 "^OpenSSH" install ./build
check root/use 0 "^OpenSSH" shell ./build -- ssh -V

# --- share it

check save/oci 0 "^sha256:" user rt save -q ./build oci-archive:build.tar:2
check save/docker 0 "^sha256:" user rt save -q ./build docker-archive:build.docker.tar:team/tools:2
check push 0 "^sha256:" user rt push -q ./build "$registry/team/tools:2"
check push/other-tools 0 "^\[\"greet\"\] \[\"everybody\"\] mine\$" bash -c "skopeo inspect --tls-verify=false --config \
	docker://$registry/team/tools:2 | jq -r '.config | (.Entrypoint | tojson) + \" \" + (.Cmd | tojson) + \" \" + .Labels.team'"
check pushed/pull 0 "" user rt pull -q "$registry/team/tools:2" pushed
check pushed/entrypoint 0 "^greet: everybody\$" run ./pushed
check pushed/installed 0 "^OpenSSH" shell ./pushed -- ssh -V
check pushed/from-archive 0 "" user rt pull -q docker-archive:build.docker.tar from-archive
check pushed/archive-runs 0 "^OpenSSH" shell ./from-archive -- ssh -V

# --- by the image's name alone

check image/run 0 "^greet: by name\$" run "$registry/team/tools:2" -- by name
check image/file 0 "^$work/user/tools.sqsh\$" user rt pull -q "$registry/team/tools:1" tools.sqsh
check image/file-again 0 "^rt: unchanged: sha256:" user rt pull "$registry/team/tools:1" tools.sqsh
check image/program 0 "^$work/user/app\$" user rt save -q "$registry/team/tools:1" --runfile app
check image/program-runs 0 "^greet: of a file\$" user ./app --rt-extract of a file
check image/again 0 "^OpenSSH" shell --pull never "$registry/team/tools:2" -- ssh -V
check images 0 "team/tools:2" user rt images
check images/rmi 0 "" user rt rmi "$registry/team/tools:2"
check images/prune 0 "" user rt prune
check images/gone 1 "" run --pull never "$registry/team/tools:2"

# --- as a single file

# with_fuse FUNCTION...: where /dev/fuse is open to all, as udev's rules have it
with_fuse() {
	[ -e "$work/fuse" ] || { mknod "$work/fuse" c 10 229 && chmod 666 "$work/fuse"; }
	export work uid rt
	export -f user run shell
	unshare --mount --propagation private bash -c 'mount --bind "$work/fuse" /dev/fuse && "$@"' sh "$@"
}
check file/pull 0 "^$work/user/tools.sqsh\$" user rt pull -q "$registry/team/tools:1" tools.sqsh
check file/save 0 "^$work/user/build.sqsh\$" user rt save -q ./build build.sqsh
if [ -c /dev/fuse ]; then
	check file/run 0 "^greet: from a file\$" with_fuse run ./tools.sqsh -- from a file
	check file/installed 0 "^OpenSSH" with_fuse shell ./build.sqsh -- ssh -V
	check file/overlay 0 "^kept\$" with_fuse shell --overlay of-file ./build.sqsh -- sh -c 'echo kept >/kept; cat /kept'
	check file/servers-end 0 "" timeout 20 bash -c "while pgrep -u $uid rt-image; do sleep 0.1; done"
else
	skip file/run "no /dev/fuse here: images that are files are only unpacked"
fi
check file/extract 0 "^OpenSSH" shell --extract ./build.sqsh -- ssh -V

# --- what counts here, where the time goes, what is wrong

mkdir -p "$work/home/.config/rt"
printf '[run]\nenv = { DAY = "sunny" }\nmounts = [{ source = "%s", target = "/mnt/home" }]\n' "$work/home" >"$work/home/.config/rt/config.toml"
chown -R $uid:$uid "$work/home/.config"
check config 0 "DAY.*config.toml:2" user rt config
check config/counts 0 "^sunny .config\$" shell ./tools -- sh -c 'echo $DAY $(ls -A /mnt/home | grep config)'
check trace 0 "" shell --trace trace.json ./tools -- true
check trace/phases 0 "^true\$" jq '.phases | length > 3' "$work/user/trace.json"
check doctor 0 "^ok +user namespace" user rt doctor
check doctor/json 0 "^true\$" bash -c "$(declare -f user); work=$work uid=$uid; user rt doctor --json | jq 'type == \"object\" or type == \"array\"'"
rm "$work/home/.config/rt/config.toml"

# --- clean up

check prune 0 "freed" user rt cache prune
check nothing-left 0 "^\$" bash -c "find $work/user $work/state -maxdepth 3 -name '*.partial-*'; $(declare -f user); work=$work uid=$uid; user rt list -q"
done_testing
