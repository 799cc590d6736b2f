"""Turns the default seccomp profile of podman (containers/common) into an OCI seccomp section."""

PODMAN_CAPS = {
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}


def section(profile, arch="amd64", native="SCMP_ARCH_X86_64", caps=PODMAN_CAPS, kernel=(6, 0)):
    """What podman writes into config.json for a container with `caps` (its setupSeccomp)."""

    def applies(rule):
        wanted, unwanted = rule.get("includes") or {}, rule.get("excludes") or {}
        if arch in (unwanted.get("arches") or []) or caps & set(unwanted.get("caps") or []):
            return False
        if wanted.get("arches") and arch not in wanted["arches"]:
            return False
        if wanted.get("minKernel") and kernel < tuple(int(n) for n in wanted["minKernel"].split(".")):
            return False
        return set(wanted.get("caps") or []) <= caps

    out = {"defaultAction": profile["defaultAction"], "architectures": [native], "syscalls": []}
    if "defaultErrnoRet" in profile:
        out["defaultErrnoRet"] = profile["defaultErrnoRet"]
    for entry in profile["archMap"]:
        if entry["architecture"] == native:
            out["architectures"] += entry["subArchitectures"]
    for rule in filter(applies, profile["syscalls"]):
        new = {"names": rule["names"], "action": rule["action"]}
        new.update({key: rule[key] for key in ("args", "errnoRet") if rule.get(key)})
        out["syscalls"].append(new)
    return out
