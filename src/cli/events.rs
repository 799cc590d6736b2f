//! `rt events`: what the container's cgroup has used, in runc's form. Only ever reads.

use super::Call;
use super::Named;
use super::state::not_json;
use super::table::*;
use crate::store::Store;
use rt_spec::state::Status;
use rt_sys::bail;
use rt_sys::cgroup::Files::{V1, V2};
use rt_sys::cgroup::{self, Cgroups};
use rt_sys::error::{Context, Result};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;

/// Prints one sample, or one per interval until the container has stopped.
pub(super) fn run(call: &Call) -> Result<u8> {
    let interval = match call.flags.text(&INTERVAL)? {
        Some(text) => duration(text)?,
        None => Duration::from_secs(5),
    };
    let Named { store, id, .. } = super::find(call)?;
    let Some(pid) = running(&store, &id)? else { bail!("container not running: {id}") };
    let groups = Usage(Cgroups::of(pid).context(|| "events")?);
    let mut killed = groups.oom_kills();
    loop {
        print(&Event { kind: "stats", id: &id, data: Some(groups.stats()) })?;
        if call.flags.has(&STATS) {
            return Ok(0);
        }
        let mut left = interval;
        while !left.is_zero() {
            let nap = left.min(Duration::from_secs(1));
            std::thread::sleep(nap);
            left -= nap;
            // Another pid means that another container has got the id.
            if running(&store, &id).ok().flatten() != Some(pid) {
                return Ok(0);
            }
        }
        let now = groups.oom_kills();
        if now > killed {
            print(&Event { kind: "oom", id: &id, data: None })?;
        }
        killed = now;
    }
}

/// One line of the output, with the keys in runc's order: some readers match its beginning.
#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
}

fn print(event: &Event<'_>) -> Result<u8> {
    super::print_json(&serde_json::to_string(event).map_err(not_json)?)
}

/// The pid of the container's first process, where there is one.
fn running(store: &Store, id: &str) -> Result<Option<i32>> {
    let record = store.load(id)?;
    Ok((store.status(&record)? != Status::Stopped && record.pid != 0).then_some(record.pid))
}

/// A Go duration, such as `1m30s` or `500ms`; a number alone is in seconds.
fn duration(text: &str) -> Result<Duration> {
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let unit = &tail[..tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len())];
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" | "" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => bail!("--interval: {text:?} is no duration such as 500ms or 5s"),
        };
        let Ok(number) = number.parse::<f64>() else {
            bail!("--interval: {text:?} is no duration such as 500ms or 5s")
        };
        total += number * scale;
        rest = &tail[unit.len()..];
    }
    match Duration::try_from_secs_f64(total) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => bail!("--interval: {text:?} is not greater than 0"),
    }
}

/// What the cgroups of a process have used.
struct Usage(Cgroups);

impl Usage {
    /// The `data` of runc's events. A figure that no file gives is left out.
    fn stats(&self) -> Value {
        json!({
            "cpu": self.cpu(),
            "cpuset": self.cpuset(),
            "memory": self.memory(),
            "pids": self.pids(),
            "blkio": self.blkio(),
            "hugetlb": self.hugetlb(),
            "intel_rdt": {},
            "network_interfaces": null,
        })
    }

    /// In nanoseconds.
    fn cpu(&self) -> Value {
        let (usage, throttling, pressure) = match (self.0.files("cpu"), self.0.files("cpuacct")) {
            (Some(V2(dir)), _) => {
                let stat = table(dir, "cpu.stat");
                let nanos = |key| stat.get(key).and_then(Value::as_u64).map(|micros| micros * 1000);
                let usage = fields([
                    ("total", nanos("usage_usec")),
                    ("user", nanos("user_usec")),
                    ("kernel", nanos("system_usec")),
                ]);
                let count = |key| stat.get(key).and_then(Value::as_u64);
                let throttling = fields([
                    ("periods", count("nr_periods")),
                    ("throttledPeriods", count("nr_throttled")),
                    ("throttledTime", nanos("throttled_usec")),
                ]);
                (usage, throttling, pressure(dir, "cpu.pressure"))
            }
            (cpu, Some(V1(dir))) => {
                let stat = table(dir, "cpuacct.stat");
                // In ticks of USER_HZ, which is 100 on every architecture of today.
                let nanos = |key| stat.get(key).and_then(Value::as_u64).map(|ticks| ticks * 10_000_000);
                let mut usage = fields([
                    ("total", number(dir, "cpuacct.usage")),
                    ("user", nanos("user")),
                    ("kernel", nanos("system")),
                ]);
                if let Some(line) = read(dir, "cpuacct.usage_percpu") {
                    let each: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
                    usage["percpu"] = json!(each);
                }
                let stat = match cpu {
                    Some(V1(dir)) => table(dir, "cpu.stat"),
                    _ => Map::new(),
                };
                let count = |key| stat.get(key).and_then(Value::as_u64);
                let throttling = fields([
                    ("periods", count("nr_periods")),
                    ("throttledPeriods", count("nr_throttled")),
                    ("throttledTime", count("throttled_time")),
                ]);
                (usage, throttling, Value::Null)
            }
            _ => return json!({}),
        };
        let mut cpu = json!({ "usage": usage, "throttling": throttling });
        if !pressure.is_null() {
            cpu["psi"] = pressure;
        }
        cpu
    }

    fn cpuset(&self) -> Value {
        let lists = match self.0.files("cpuset") {
            Some(V1(dir)) => [("cpus", read(dir, "cpuset.cpus")), ("mems", read(dir, "cpuset.mems"))],
            Some(V2(dir)) => {
                [("cpus", read(dir, "cpuset.cpus.effective")), ("mems", read(dir, "cpuset.mems.effective"))]
            }
            None => return json!({}),
        };
        lists.into_iter().filter_map(|(key, list)| Some((key.to_owned(), json!(members(&list?))))).collect()
    }

    /// In bytes.
    fn memory(&self) -> Value {
        match self.0.files("memory") {
            Some(V1(dir)) => {
                let entry = |kind: &str| {
                    let file = |what: &str| number(dir, &format!("memory.{kind}{what}"));
                    fields([
                        ("usage", file("usage_in_bytes")),
                        ("max", file("max_usage_in_bytes")),
                        ("limit", file("limit_in_bytes")),
                        ("failcnt", file("failcnt")),
                    ])
                };
                let raw = table(dir, "memory.stat");
                json!({
                    "cache": raw.get("cache"),
                    "usage": entry(""),
                    "swap": entry("memsw."),
                    "kernel": entry("kmem."),
                    "kernelTCP": entry("kmem.tcp."),
                    "raw": raw,
                })
            }
            Some(V2(dir)) => {
                let events = table(dir, "memory.events");
                let (usage, limit) = (number(dir, "memory.current"), number(dir, "memory.max"));
                let swap = [number(dir, "memory.swap.current"), number(dir, "memory.swap.max")];
                // As in version 1, and in runc: swap counts memory too.
                let and_memory = |swap: Option<u64>, memory: Option<u64>| Some(swap?.saturating_add(memory?));
                let raw = table(dir, "memory.stat");
                let mut memory = json!({
                    "cache": raw.get("file"),
                    "usage": fields([
                        ("usage", usage),
                        ("max", number(dir, "memory.peak")),
                        ("limit", limit),
                        ("failcnt", events.get("max").and_then(Value::as_u64)),
                    ]),
                    "swap": fields([("usage", and_memory(swap[0], usage)), ("limit", and_memory(swap[1], limit))]),
                    "kernel": fields([("usage", raw.get("kernel").and_then(Value::as_u64))]),
                    "raw": raw,
                });
                let pressure = pressure(dir, "memory.pressure");
                if !pressure.is_null() {
                    memory["psi"] = pressure;
                }
                memory
            }
            None => json!({}),
        }
    }

    fn pids(&self) -> Value {
        let Some(V1(dir) | V2(dir)) = self.0.files("pids") else { return json!({}) };
        // No limit is 0 here.
        let limit = number(dir, "pids.max").filter(|&limit| limit != u64::MAX);
        fields([("current", number(dir, "pids.current")), ("limit", limit)])
    }

    fn blkio(&self) -> Value {
        match self.0.files("blkio") {
            Some(V1(dir)) => json!({
                "ioServiceBytesRecursive": operations(dir, "blkio.throttle.io_service_bytes_recursive"),
                "ioServicedRecursive": operations(dir, "blkio.throttle.io_serviced_recursive"),
            }),
            Some(V2(dir)) => {
                let mut blkio = io_stat(&read(dir, "io.stat").unwrap_or_default());
                let pressure = pressure(dir, "io.pressure");
                if !pressure.is_null() {
                    blkio["psi"] = pressure;
                }
                blkio
            }
            None => json!({}),
        }
    }

    /// By page size, in bytes.
    fn hugetlb(&self) -> Value {
        let Some(files) = self.0.files("hugetlb") else { return json!({}) };
        let (V1(dir) | V2(dir)) = files;
        let usage = if let V1(_) = files { ".usage_in_bytes" } else { ".current" };
        let mut sizes = Map::new();
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let size = name.to_str().and_then(|name| name.strip_prefix("hugetlb.")?.strip_suffix(usage));
            let Some(size) = size.filter(|size| !size.contains('.')) else { continue };
            let file = |what| number(dir, &format!("hugetlb.{size}{what}"));
            let failcnt = match files {
                V1(_) => file(".failcnt"),
                V2(_) => table(dir, &format!("hugetlb.{size}.events")).get("max").and_then(Value::as_u64),
            };
            let values = [("usage", file(usage)), ("max", file(".max_usage_in_bytes")), ("failcnt", failcnt)];
            sizes.insert(size.to_owned(), fields(values));
        }
        Value::Object(sizes)
    }

    /// How many processes the kernel has killed for memory.
    fn oom_kills(&self) -> u64 {
        let events = match self.0.files("memory") {
            Some(V1(dir)) => table(dir, "memory.oom_control"),
            Some(V2(dir)) => table(dir, "memory.events"),
            None => return 0,
        };
        events.get("oom_kill").and_then(Value::as_u64).unwrap_or(0)
    }
}

fn read(dir: &Path, file: &str) -> Option<String> {
    std::fs::read_to_string(dir.join(file)).ok()
}

fn number(dir: &Path, file: &str) -> Option<u64> {
    cgroup::number(dir, file).ok().flatten()
}

/// A file with a key and a number in each line.
fn table(dir: &Path, file: &str) -> Map<String, Value> {
    let text = read(dir, file).unwrap_or_default();
    let row = |line: &str| {
        let (key, number) = line.split_once(' ')?;
        Some((key.to_owned(), json!(number.trim().parse::<u64>().ok()?)))
    };
    text.lines().filter_map(row).collect()
}

/// An object of the figures that are there.
fn fields<const N: usize>(figures: [(&str, Option<u64>); N]) -> Value {
    figures.into_iter().filter_map(|(key, figure)| Some((key.to_owned(), json!(figure?)))).collect()
}

/// A pressure file: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn pressure(dir: &Path, file: &str) -> Value {
    let Some(text) = read(dir, file) else { return Value::Null };
    let mut lines = Map::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default().to_owned();
        let figure = |word: &str| {
            let (key, value) = word.split_once('=')?;
            let value = if key == "total" {
                json!(value.parse::<u64>().ok()?)
            } else {
                json!(value.parse::<f64>().ok()?)
            };
            Some((key.to_owned(), value))
        };
        lines.insert(kind, Value::Object(words.filter_map(figure).collect()));
    }
    Value::Object(lines)
}

/// Version 1's lines `8:0 Read 4096`.
fn operations(dir: &Path, file: &str) -> Vec<Value> {
    let entry = |line: &str| {
        let mut words = line.split(' ');
        let (major, minor) = words.next()?.split_once(':')?;
        Some(operation(major, minor, words.next()?, words.next()?))
    };
    read(dir, file).unwrap_or_default().lines().filter_map(entry).collect()
}

/// Version 2's lines `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`.
fn io_stat(text: &str) -> Value {
    let (mut bytes, mut requests) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split(' ');
        let Some((major, minor)) = words.next().and_then(|device| device.split_once(':')) else { continue };
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let (list, op) = match key {
                "rbytes" => (&mut bytes, "Read"),
                "wbytes" => (&mut bytes, "Write"),
                "dbytes" => (&mut bytes, "Discard"),
                "rios" => (&mut requests, "Read"),
                "wios" => (&mut requests, "Write"),
                "dios" => (&mut requests, "Discard"),
                _ => continue,
            };
            list.push(operation(major, minor, op, value));
        }
    }
    json!({ "ioServiceBytesRecursive": bytes, "ioServicedRecursive": requests })
}

fn operation(major: &str, minor: &str, op: &str, value: &str) -> Value {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    json!({ "major": number(major), "minor": number(minor), "op": op, "value": number(value) })
}

/// The members of a list such as `0-2,7`.
fn members(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory with these files, removed when dropped.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str, files: &[(&str, &str)]) -> Dir {
            let dir = std::env::temp_dir().join(format!("rt-events-{}-{name}", std::process::id()));
            std::fs::create_dir(&dir).unwrap();
            for (file, text) in files {
                std::fs::write(dir.join(file), text).unwrap();
            }
            Dir(dir)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn version_2_reads_as_runcs() {
        let dir = Dir::new(
            "v2",
            &[
                (
                    "cpu.stat",
                    "usage_usec 3\nuser_usec 2\nsystem_usec 1\nnr_periods 4\nnr_throttled 5\nthrottled_usec 6\n",
                ),
                ("cpu.pressure", "some avg10=1.50 avg60=0.00 avg300=0.00 total=7\n"),
                ("memory.current", "100\n"),
                ("memory.max", "max\n"),
                ("memory.swap.current", "11\n"),
                ("memory.swap.max", "0\n"),
                ("memory.stat", "anon 60\nfile 40\n"),
                ("memory.events", "low 0\nmax 9\noom_kill 2\n"),
                ("pids.current", "8\n"),
                ("pids.max", "max\n"),
                ("io.stat", "8:16 rbytes=4096 wbytes=1 rios=1 wios=2 dbytes=0 dios=0\n"),
                ("cpuset.cpus.effective", "0-2,7\n"),
                ("hugetlb.2MB.current", "5\n"),
                ("hugetlb.2MB.rsvd.current", "6\n"),
                ("hugetlb.2MB.events", "max 3\n"),
            ],
        );
        let groups = Usage(Cgroups { v1: Vec::new(), v2: Some(dir.0.clone()) });
        let read =
            |major, minor, op: &str, value| json!({"major": major, "minor": minor, "op": op, "value": value});
        assert_eq!(
            groups.stats(),
            json!({
                "cpu": {
                    "usage": { "total": 3000, "user": 2000, "kernel": 1000 },
                    "throttling": { "periods": 4, "throttledPeriods": 5, "throttledTime": 6000 },
                    "psi": { "some": { "avg10": 1.5, "avg60": 0.0, "avg300": 0.0, "total": 7 } },
                },
                "cpuset": { "cpus": [0, 1, 2, 7] },
                "memory": {
                    "cache": 40,
                    "usage": { "usage": 100, "limit": u64::MAX, "failcnt": 9 },
                    "swap": { "usage": 111, "limit": u64::MAX },
                    "kernel": {},
                    "raw": { "anon": 60, "file": 40 },
                },
                "pids": { "current": 8 },
                "blkio": {
                    "ioServiceBytesRecursive": [read(8, 16, "Read", 4096), read(8, 16, "Write", 1), read(8, 16, "Discard", 0)],
                    "ioServicedRecursive": [read(8, 16, "Read", 1), read(8, 16, "Write", 2), read(8, 16, "Discard", 0)],
                },
                "hugetlb": { "2MB": { "usage": 5, "failcnt": 3 } },
                "intel_rdt": {},
                "network_interfaces": null,
            })
        );
        assert_eq!(groups.oom_kills(), 2);
    }

    #[test]
    fn version_1_reads_as_runcs() {
        let dir = Dir::new(
            "v1",
            &[
                ("cpuacct.usage", "30\n"),
                ("cpuacct.usage_percpu", "10 20 \n"),
                ("cpuacct.stat", "user 2\nsystem 1\n"),
                ("cpu.stat", "nr_periods 4\nnr_throttled 5\nthrottled_time 6\n"),
                ("memory.usage_in_bytes", "100\n"),
                ("memory.limit_in_bytes", "200\n"),
                ("memory.stat", "cache 40\n"),
                ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
                ("pids.current", "8\n"),
                ("pids.max", "9\n"),
                ("blkio.throttle.io_serviced_recursive", "8:16 Read 4\nTotal 4\n"),
            ],
        );
        let all = ["cpu", "cpuacct", "memory", "pids", "blkio"].map(|c| (c.to_owned(), dir.0.clone()));
        let groups = Usage(Cgroups { v1: all.into(), v2: None });
        assert_eq!(
            groups.cpu(),
            json!({
                "usage": { "total": 30, "user": 20_000_000, "kernel": 10_000_000, "percpu": [10, 20] },
                "throttling": { "periods": 4, "throttledPeriods": 5, "throttledTime": 6 },
            })
        );
        assert_eq!(groups.memory()["usage"], json!({ "usage": 100, "limit": 200 }));
        assert_eq!(groups.memory()["cache"], 40);
        assert_eq!(groups.pids(), json!({ "current": 8, "limit": 9 }));
        let served = json!([{ "major": 8, "minor": 16, "op": "Read", "value": 4 }]);
        assert_eq!(groups.blkio()["ioServicedRecursive"], served);
        assert_eq!(groups.oom_kills(), 1);
        assert_eq!(groups.cpuset(), json!({}));
    }

    #[test]
    fn durations_are_gos() {
        for (text, millis) in
            [("5s", 5000), ("500ms", 500), ("1m30s", 90_000), ("1.5s", 1500), ("2", 2000), ("1h", 3_600_000)]
        {
            assert_eq!(duration(text).unwrap().as_millis(), millis, "{text}");
        }
        for text in ["", "0s", "s", "5x", "1..2s", "-1s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn this_process_has_figures() {
        // Whatever the layout of this machine is, nothing fails.
        assert!(Usage(Cgroups::of(std::process::id() as i32).unwrap()).stats().is_object());
    }
}
