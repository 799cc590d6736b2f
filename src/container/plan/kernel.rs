//! What a plan sets in the kernel for whole namespaces: clocks, network devices, sysctls.

use rt_spec::Linux;

/// A network device that is moved into the container.
#[derive(Debug)]
pub(crate) struct NetDevice {
    /// Its name on the host.
    pub name: String,
    /// Its name in the container.
    pub name_inside: String,
}

/// A kernel setting (sysctl(8)).
#[derive(Debug)]
pub(crate) struct Sysctl {
    /// The key as the config has it.
    pub key: String,
    /// Its path below /proc/sys.
    pub path: String,
    /// The value.
    pub value: String,
}

/// The offsets of a new time namespace, as the kernel reads them (time_namespaces(7)).
pub(super) fn time_offsets(linux: &Linux) -> String {
    let mut text = String::new();
    for (clock, offset) in linux.time_offsets().iter().flatten() {
        let line = format!("{clock} {} {}\n", offset.secs().unwrap_or(0), offset.nanosecs().unwrap_or(0));
        text.push_str(&line);
    }
    text
}

/// The network devices of the config, ordered by name.
pub(super) fn net_devices(linux: &Linux) -> Vec<NetDevice> {
    let devices = linux.net_devices().iter().flatten();
    let mut list: Vec<NetDevice> = devices
        .map(|(name, device)| {
            let inside = device.name().clone().filter(|n| !n.is_empty());
            NetDevice { name: name.clone(), name_inside: inside.unwrap_or_else(|| name.clone()) }
        })
        .collect();
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}

/// The sysctls of the config, ordered by key.
pub(super) fn sysctl(linux: &Linux) -> Vec<Sysctl> {
    let mut list: Vec<Sysctl> = linux
        .sysctl()
        .iter()
        .flatten()
        .map(|(key, value)| {
            // As sysctl(8): a key with a slash before any dot has slashes as separators.
            let path = match key.find(['.', '/']) {
                Some(n) if key.as_bytes()[n] == b'/' => key.clone(),
                _ => key
                    .chars()
                    .map(|c| match c {
                        '.' => '/',
                        '/' => '.',
                        c => c,
                    })
                    .collect(),
            };
            Sysctl { key: key.clone(), path, value: value.clone() }
        })
        .collect();
    list.sort_by(|a, b| a.key.cmp(&b.key));
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt_spec::Config;

    #[test]
    fn sysctl_keys_become_paths() {
        let text = r#"{"linux":{"sysctl":{"net.ipv4.conf.eth0/1.forwarding":"1","kernel/shmmax":"7"}}}"#;
        let config = Config::parse(text.into()).unwrap();
        let paths: Vec<String> =
            sysctl(config.spec.linux().as_ref().unwrap()).into_iter().map(|setting| setting.path).collect();
        assert_eq!(paths, ["kernel/shmmax", "net/ipv4/conf/eth0.1/forwarding"]);
    }
}
