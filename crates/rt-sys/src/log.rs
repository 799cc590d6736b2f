//! Log lines as runc writes them, which is how podman, containerd and CRI-O read them.
//!
//! Two rules come from those readers:
//!
//! * podman takes the whole file for one JSON object, so unless `--debug` or `--log-level` asks for
//!   more, the only line ever written is the error that the command ends with.
//! * Several calls share one file, so lines are appended, each by one write(2).
//!
//! The file is opened when there is something to write; that it could be is asked at once. Where more than errors is
//! asked for, it is opened by [`init`]: a process that has moved into a container must not open its path there.

use crate::error::{Context, Result};
use crate::time::rfc3339;
use log::{Level, LevelFilter, Log, Metadata, Record};
use rustix::fs;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

/// The form of a log line (`--log-format`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// `time="..." level=error msg="..."`
    #[default]
    Text,
    /// `{"level":"error","msg":"...","time":"..."}`
    Json,
    /// `rt: ...`, for people.
    Plain,
    /// The text alone, for another command of `rt`, which shows it itself.
    Caller,
}

struct Sink {
    format: Format,
    /// `--log`, absolute.
    path: Option<PathBuf>,
    /// Open from the start where more than errors is wanted, or this process will not see the path later.
    file: OnceLock<File>,
}

static SINK: OnceLock<Sink> = OnceLock::new();

/// Sets the log up, once per process. Lines less severe than errors go to `path`, else to stderr.
///
/// Fails where `path` cannot be written.
pub fn init(level: LevelFilter, format: Format, path: Option<&Path>) -> Result<()> {
    let path = path.map(std::path::absolute).transpose()?;
    if SINK.set(Sink { format, path, file: OnceLock::new() }).is_ok() {
        let _ = log::set_logger(&Lines);
        log::set_max_level(level);
    }
    match SINK.get().and_then(|sink| sink.path.as_deref()) {
        Some(_) if level > LevelFilter::Error => keep_open(),
        Some(path) => require_place(path).context(|| format!("open log {}", path.display())),
        None => Ok(()),
    }
}

/// Fails where there is neither such a file, nor a directory to make it in, that may be written.
fn require_place(path: &Path) -> Result<()> {
    let may = |path: &Path, access| fs::accessat(fs::CWD, path, access, fs::AtFlags::EACCESS);
    let dir = path.parent().unwrap_or(Path::new("/"));
    let place = may(dir, fs::Access::WRITE_OK | fs::Access::EXEC_OK);
    Ok(place.or_else(|e| may(path, fs::Access::WRITE_OK).map_err(|_| e))?)
}

/// Opens the log now: a process that moves into a container must not open its path there.
pub fn keep_open() -> Result<()> {
    if let Some(sink) = SINK.get()
        && let Some(path) = &sink.path
        && sink.file.get().is_none()
    {
        let _ = sink.file.set(open(path)?);
    }
    Ok(())
}

/// The descriptor of the log, if it is open.
pub fn descriptor() -> Option<RawFd> {
    SINK.get()?.file.get().map(AsRawFd::as_raw_fd)
}

/// Who has been told of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Nobody: there is no log.
    Nobody,
    /// The reader of the log.
    Log,
    /// Whoever shows it in place of this process.
    Caller,
}

/// Writes the error that the command ends with to the log, and says who reads it there.
///
/// A process that has left the caller's file system must have called [`keep_open`].
pub fn report(text: &str) -> Result<Told> {
    let Some(sink) = SINK.get() else { return Ok(Told::Nobody) };
    let Some(path) = &sink.path else { return Ok(Told::Nobody) };
    let line = line(sink.format, Level::Error, text, SystemTime::now());
    let opened;
    let mut file = match sink.file.get() {
        Some(file) => file,
        None => {
            opened = open(path)?;
            &opened
        }
    };
    file.write_all(line.as_bytes()).context(|| format!("write {}", path.display()))?;
    Ok(if sink.format == Format::Caller { Told::Caller } else { Told::Log })
}

fn open(path: &Path) -> Result<File> {
    // O_CLOEXEC comes with std.
    let mut options = File::options();
    options
        .append(true)
        .create(true)
        .mode(0o644)
        .open(path)
        .context(|| format!("open log {}", path.display()))
}

/// The `log` crate's way in.
struct Lines;

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata) -> bool {
        // What libraries log is theirs.
        metadata.level() <= log::max_level()
            && ["rt::", "rt_"].iter().any(|ours| metadata.target().starts_with(ours))
    }

    fn log(&self, record: &Record) {
        let Some(sink) = SINK.get() else { return };
        let line = line(sink.format, record.level(), &record.args().to_string(), SystemTime::now());
        // A log that cannot be written must not change what the command does.
        let _ = match (sink.file.get(), &sink.path) {
            (Some(file), _) => (&*file).write_all(line.as_bytes()),
            (None, None) => std::io::stderr().write_all(line.as_bytes()),
            (None, Some(_)) => Ok(()),
        };
    }

    fn flush(&self) {}
}

/// One line, with its newline.
fn line(format: Format, level: Level, text: &str, time: SystemTime) -> String {
    let (level, time) = (level_name(level), rfc3339(time));
    match format {
        // logrus sorts the keys.
        Format::Json => json(&serde_json::json!({ "level": level, "msg": text, "time": time })) + "\n",
        Format::Plain => format!("rt: {}\n", one_line(text)),
        Format::Caller => format!("{}\n", one_line(text)),
        Format::Text => format!("time=\"{time}\" level={level} msg={}\n", quoted(text)),
    }
}

/// True for what steers a terminal, or shows text in another order than it has: control characters, C1 among them, and
/// marks of direction (UAX #9).
fn steers(c: char) -> bool {
    let is_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_direction
}

/// `text` in one line, with what steers a terminal escaped. Names come from configs, images and registries, and lines go to
/// terminals.
pub fn one_line(text: &str) -> String {
    escaped(text.trim_end(), |c| steers(c).then(|| c.escape_default().to_string()))
}

/// `text` with what steers a terminal escaped, but for the ends of its lines.
pub fn lines(text: &str) -> String {
    escaped(text, |c| (c != '\n' && steers(c)).then(|| c.escape_default().to_string()))
}

/// Says something in a line on standard error. Where that is closed there is nobody to hear it.
pub fn tell(text: impl Display) {
    let line = format!("rt: {}\n", one_line(&text.to_string()));
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

/// JSON with what steers a terminal escaped. JSON itself escapes what is below U+0020 only.
pub fn json(json: &impl Display) -> String {
    // Each of these is one unit of UTF-16, and stands in strings only.
    let is_raw = |c: char| steers(c) && c >= '\u{7f}';
    escaped(&json.to_string(), |c| is_raw(c).then(|| format!("\\u{:04x}", u32::from(c))))
}

fn escaped(text: &str, escape: impl Fn(char) -> Option<String>) -> String {
    let mut all = String::with_capacity(text.len());
    for c in text.chars() {
        match escape(c) {
            Some(text) => all.push_str(&text),
            None => all.push(c),
        }
    }
    all
}

/// logrus' names.
fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

/// `text` in quotes, unless it is one plain word, as logrus' text format has it.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/@^+".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::new(seconds, 42)
    }

    #[test]
    fn json_lines_are_what_go_reads() {
        let text =
            line(Format::Json, Level::Error, "exec: \"/x\": stat /x: no such file or directory", at(0));
        assert_eq!(
            text,
            "{\"level\":\"error\",\"msg\":\"exec: \\\"/x\\\": stat /x: no such file or directory\",\
             \"time\":\"1970-01-01T00:00:00.000000042Z\"}\n"
        );
    }

    #[test]
    fn text_lines_are_what_logrus_writes() {
        let line = |level, text| line(Format::Text, level, text, at(0));
        assert_eq!(
            line(Level::Warn, "two words \"quoted\"\n"),
            "time=\"1970-01-01T00:00:00.000000042Z\" level=warning msg=\"two words \\\"quoted\\\"\\n\"\n"
        );
        assert!(line(Level::Error, "word").ends_with(" level=error msg=word\n"));
        assert!(line(Level::Error, "").ends_with(" msg=\"\"\n"));
    }

    #[test]
    fn plain_lines_do_not_steer_a_terminal() {
        let text = line(Format::Plain, Level::Info, "a \x1b[31mmirror\r\n says \u{e9}\u{9b}2J\n", at(0));
        assert_eq!(text, "rt: a \\u{1b}[31mmirror\\r\\n says \u{e9}\\u{9b}2J\n");
        let turned = "a\u{202e}b\u{2066}c\u{200f}d\u{61c}e\u{9b}f\u{7f}g\u{200d}\n";
        let shown = "a\\u{202e}b\\u{2066}c\\u{200f}d\\u{61c}e\\u{9b}f\\u{7f}g\u{200d}\n";
        assert_eq!((one_line(turned) + "\n", lines(turned)), (shown.to_owned(), shown.to_owned()));
        let document = serde_json::json!({ "k\u{9b}": turned });
        let text = json(&document);
        assert!(!text.chars().any(steers), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), document);
        assert!(!line(Format::Text, Level::Error, turned, at(0)).trim_end().chars().any(steers));
    }
}
