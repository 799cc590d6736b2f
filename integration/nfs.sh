#!/bin/bash
# rt on NFS, in QEMU: a guest whose kernel serves NFS 3 and 4.2 with root_squash to two clients, which have network, mount,
# PID and UTS namespaces and a boot id each of their own, as two nodes have. Bundles, image files, the store of images, the
# cache of blobs and state directories lie there. Needs a mirror and, to install QEMU, root.
# usage: integration/nfs.sh RT
set -uo pipefail
cd "$(dirname "$0")/.."
bin=$(dirname "$(realpath "${1:-build/rt}")")
. integration/tap
[ "$(uname -m)" = x86_64 ] || skip_all "the guest is x86_64"
if [ "$(id -u)" = 0 ]; then
	integration/packages qemu-system-x86 cpio kmod busybox-static xz-utils zstd iproute2 squashfs-tools nfs-common rpcbind
fi
for tool in qemu-system-x86_64 cpio busybox mksquashfs mount.nfs rpcbind ip python3; do
	command -v $tool >/dev/null || [ -x /usr/sbin/$tool ] || skip_all "no $tool"
done
MODULES="overlay fuse veth nfsd nfsv3 nfsv4 lockd" integration/kernels/kernel integration/work/kernels/nfs bookworm \
	'linux-image-6\.1\.[0-9-]*-cloud-amd64-unsigned' || skip_all "no kernel"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
mkdir -p "$tree"/{bin,etc,home,lib,lib64,proc,root,sbin,sys,dev,tmp,run,var,usr/{bin,sbin,lib,share/image/rootfs}}
cp "$(command -v busybox)" "$tree/bin/busybox"
for applet in $(busybox --list | grep -vx busybox); do ln -s busybox "$tree/bin/$applet"; done
for program in rt rt-pull rt-image; do cp "$bin/$program" "$tree/usr/bin/"; done
# The server's programs and setfacl, unpacked: the package would start a server here.
packages=$(realpath integration/work)/nfs-packages
for package in nfs-kernel-server acl; do
	[ ! -e "$packages/usr/share/doc/$package" ] || continue
	mkdir -p "$packages" && (cd "$packages" && apt-get download -qq $package && dpkg-deb -x ./*.deb . && rm ./*.deb) \
		>/dev/null 2>&1 || skip_all "no package $package"
done
with_libraries() { # PROGRAM: into the tree, with its libraries
	rm -f "$tree/bin/${1##*/}" "$tree/usr/bin/${1##*/}"
	cp -L "$1" "$tree/usr/bin/${1##*/}"
	local library
	for library in $(ldd "$1" | grep -oE '/[^ ]+'); do
		mkdir -p "$tree$(dirname "$library")" && cp -L "$library" "$tree$library"
	done
}
for program in bash setpriv unshare nsenter mount umount ip; do with_libraries "$(PATH=$PATH:/sbin:/usr/sbin command -v $program)"; done
for program in "$packages"/usr/sbin/{rpc.mountd,exportfs} /usr/sbin/{mount.nfs,rpcbind}; do with_libraries "$program"; done
with_libraries "$(PATH=$packages/bin:$packages/usr/bin command -v setfacl)"
ln -s /usr/bin/mount.nfs "$tree/sbin/mount.nfs"
ln -s /usr/bin/mount.nfs "$tree/sbin/mount.nfs4"
for file in netconfig protocols rpc services; do cp /etc/$file "$tree/etc/"; done
printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n_rpc:x:100:100::/:/bin/sh\n' >"$tree/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"
echo 'hosts: files' >"$tree/etc/nsswitch.conf"
printf '127.0.0.1 localhost\n10.0.1.1 server\n' >"$tree/etc/hosts"
# An image: for the registry, as a file, and as a root.
root=$tree/usr/share/image/rootfs
mkdir -p "$root"/{bin,data,tmp,proc,dev,sys,etc}
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in sh cat id ls sleep true touch find wc mv; do ln -s busybox "$root/bin/$applet"; done
for n in $(seq 60); do echo "$n" >"$root/data/$n"; done
mksquashfs "$root" "$tree/usr/share/image/image.sqsh" -comp gzip -all-root -noappend -quiet -no-progress >/dev/null
integration/nfs/registry "$root" "$tree/usr/share/registry" || skip_all "no image could be made"
install -m 755 integration/kernels/init "$tree/init"
cp integration/nfs/checks "$tree/checks"
cp integration/tap "$tree/usr/lib/tap"
export LIMIT=${LIMIT:-590}
include guest integration/kernels/boot integration/work/kernels/nfs "$tree"
done_testing
