#!/usr/bin/env python3
"""rt pull beside podman, skopeo + umoci and ch-image; medians of interleaved rounds.

bench.py --rt RT_PULL [--rounds 5] [--size small|medium|large] [--zstd] [--keep DIR]

Builds its image from Debian packages (debootstrap) and PyPI wheels (pip download), with layers that
replace and remove files of lower ones, pushes it to docker-registry on loopback, and pulls it as
the user who calls. Run it as a plain user; `sudo bench.py --prepare-only --keep DIR` makes the image.

The floor is what no tool can go below with the decoders at hand, measured in the same rounds:
  download  curl of all blobs to /dev/null          hash   SHA-256 (OpenSSL) of all blobs
  inflate   igzip -d (zstd -d) of all layers        write  tar -x of the final tree from memory
  floor = max(download, hash, inflate, write, (cpu of all four) / CPUs)
"""
import argparse, hashlib, json, os, resource, shutil, statistics, subprocess, sys, tempfile, time

WHEELS = {
    "small": [],
    "medium": ["numpy==1.26.4", "scipy==1.11.4"],
    "large": ["torch==2.1.2", "numpy==1.26.4", "scipy==1.11.4", "pandas==2.1.4"],
}
PORT = 5065


def run(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)


def prepare(work, size, zstd):
    """The image as an OCI layout and in the registry's storage."""
    layout = f"{work}/layout"
    if not os.path.exists(layout):
        tree = f"{work}/tree"
        if not os.path.exists(tree):
            mirror = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
            run("debootstrap", "--variant=minbase", "--include=python3-minimal,ca-certificates", "bookworm", tree, mirror)
        run("umoci", "init", "--layout", layout)
        run("umoci", "new", "--image", f"{layout}:t")
        run("umoci", "insert", "--image", f"{layout}:t", tree, "/")
        if WHEELS[size]:
            wheels = f"{work}/wheels"
            site = f"{work}/site"
            run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:",
                "--python-version", "3.11", "-d", wheels, *WHEELS[size])
            os.makedirs(site, exist_ok=True)
            for wheel in sorted(os.listdir(wheels)):
                run(sys.executable, "-m", "zipfile", "-e", f"{wheels}/{wheel}", site)
            run("umoci", "insert", "--image", f"{layout}:t", site, "/opt/site")
        # Layers as builds have them: files removed, files replaced.
        run("umoci", "insert", "--whiteout", "--image", f"{layout}:t", "/usr/share/doc")
        run("umoci", "insert", "--image", f"{layout}:t", f"{tree}/usr/bin", "/usr/bin")
        run("umoci", "config", "--image", f"{layout}:t", "--config.cmd", "/bin/sh")
    with open(f"{work}/registry.yml", "w") as out:
        out.write(f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {work}/data}}}}\n"
                  f"http: {{addr: '127.0.0.1:{PORT}'}}\n")
    server = subprocess.Popen(["docker-registry", "serve", f"{work}/registry.yml"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    time.sleep(1)
    extra = ["--dest-compress-format", "zstd"] if zstd else []
    run("skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false", *extra, f"oci:{layout}:t",
        f"docker://127.0.0.1:{PORT}/bench:1")
    return server


def timed(command, **more):
    """Wall seconds, CPU seconds, peak MB of the largest process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)
    _, err = process.communicate()
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise RuntimeError(f"{command}: {err.decode()[-400:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peak(command):
    """Peak resident MB, by GNU time."""
    out = subprocess.run(["/usr/bin/time", "-f", "%M", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return int(out.stderr.decode().strip().splitlines()[-1]) // 1024


def floor(work, manifest, zstd):
    """Seconds of each stage alone, and the floor."""
    base = f"http://127.0.0.1:{PORT}/v2/bench/blobs/"
    blobs = f"{work}/blobs"
    os.makedirs(blobs, exist_ok=True)
    digests = [layer["digest"] for layer in manifest["layers"]]
    config = ["-o", "/dev/null"]
    arguments = [word for digest in digests for word in (*config, base + digest)]
    download = timed(["curl", "-sf", *arguments])
    for digest in digests:
        path = f"{blobs}/{digest[7:]}"
        if not os.path.exists(path):
            run("curl", "-sf", "-o", path, base + digest)
    paths = [f"{blobs}/{digest[7:]}" for digest in digests]
    hashed = timed(["openssl", "dgst", "-sha256", *paths])
    decoder = "zstd -dcq" if zstd else ("igzip -dc" if shutil.which("igzip") else "gzip -dc")
    inflate = timed(["sh", "-c", "for p; do " + decoder + " <$p >/dev/null; done", "sh", *paths])
    tree = f"{work}/floor-tree"
    os.makedirs(tree)
    write = timed(["tar", "-xf", f"{work}/final.tar", "-C", tree])
    shutil.rmtree(tree)
    stages = {"download": download, "hash": hashed, "inflate": inflate, "write": write}
    cpus = len(os.sched_getaffinity(0))
    least = max([wall for wall, _ in stages.values()] + [sum(cpu for _, cpu in stages.values()) / cpus])
    return least, {name: round(wall, 2) for name, (wall, _) in stages.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rt", default="rt-pull")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", choices=WHEELS, default="medium")
    parser.add_argument("--zstd", action="store_true")
    parser.add_argument("--keep", help="where the image is kept")
    parser.add_argument("--prepare-only", action="store_true")
    options = parser.parse_args()
    work = options.keep or tempfile.mkdtemp(prefix="rt-bench-")
    os.makedirs(work, exist_ok=True)
    server = prepare(work, options.size, options.zstd)
    try:
        if not options.prepare_only:
            measure(work, options)
    finally:
        server.terminate()


def measure(work, options):
    image = f"127.0.0.1:{PORT}/bench:1"
    rt = os.path.realpath(options.rt)
    manifest = json.loads(subprocess.check_output(
        ["skopeo", "inspect", "--tls-verify=false", "--raw", f"docker://{image}"]))
    scratch = f"{work}/run-{os.getpid()}"
    os.makedirs(scratch)
    # podman and skopeo look for credentials there, and stop where they may not look.
    os.environ["XDG_RUNTIME_DIR"] = scratch
    cache, bundle = f"{scratch}/cache", f"{scratch}/bundle"
    pull = [rt, "pull", "-q", "--private", "--plain-http", "--cache", cache, image, bundle]

    def clean(*paths):
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)

    timed(pull)
    run("tar", "-cf", f"{work}/final.tar", "-C", f"{bundle}/rootfs", ".")
    podman = ["podman", "--root", f"{scratch}/store", "--runroot", f"{scratch}/runroot", "--storage-driver", "overlay"]
    umoci = (f"skopeo copy -q --insecure-policy --src-tls-verify=false docker://{image} oci:{scratch}/oci:t && "
             f"umoci unpack --rootless --image {scratch}/oci:t {scratch}/umoci")

    def cold():
        clean(cache, bundle)
        return timed(pull)

    def warm():
        clean(bundle)
        return timed(pull)

    def skopeo_umoci():
        clean(f"{scratch}/oci", f"{scratch}/umoci")
        return timed(["sh", "-c", umoci])

    def podman_pull():
        subprocess.run([*podman, "unshare", "rm", "-rf", f"{scratch}/store"], stderr=subprocess.DEVNULL)
        return timed([*podman, "pull", "-q", "--tls-verify=false", image])

    def charliecloud():
        clean(f"{scratch}/ch")
        return timed(["ch-image", "--storage", f"{scratch}/ch", "--no-cache", "--tls-no-verify", "pull", image])

    contenders = {"rt pull": cold, "rt pull, warm cache": warm, "rt pull, unchanged": lambda: timed(pull),
                  "podman pull": podman_pull, "skopeo + umoci": skopeo_umoci}
    if shutil.which("ch-image"):
        contenders["ch-image pull"] = charliecloud
    results = {name: [] for name in contenders}
    floors, stages = [], {}
    for _ in range(options.rounds):
        least, stages = floor(work, manifest, options.zstd)
        floors.append(least)
        for name, contender in list(contenders.items()):
            try:
                results[name].append(contender())
                print(f"{name}: {results[name][-1][0]:.2f}", file=sys.stderr, flush=True)
            except RuntimeError as e:
                print(f"{name}: left out: {e}", file=sys.stderr)
                del contenders[name]
    clean(cache, bundle)
    memory = peak(pull)
    layers = sum(layer["size"] for layer in manifest["layers"])
    print(f"{len(manifest['layers'])} layers, {layers / 1e6:.0f} MB compressed; {options.rounds} rounds; "
          f"{len(os.sched_getaffinity(0))} CPUs; uid {os.getuid()}; load {os.getloadavg()[0]:.1f}")
    base = statistics.median(wall for wall, _ in results["rt pull"])
    least = statistics.median(floors)
    print(f"| what | median s | best s | CPU s | of rt pull |\n|---|---|---|---|---|")
    for name, runs in results.items():
        if runs:
            wall = statistics.median(wall for wall, _ in runs)
            cpu = statistics.median(cpu for _, cpu in runs)
            print(f"| {name} | {wall:.2f} | {min(w for w, _ in runs):.2f} | {cpu:.2f} | {wall / base:.2f} |")
    print(f"| floor | {least:.2f} | {min(floors):.2f} | | {least / base:.2f} |")
    print(f"stages of the floor, last round: {stages}; rt pull = {base / least:.2f} floors; peak {memory} MB")
    clean(scratch)


main()
