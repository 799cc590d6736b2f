//! A registry of images over plain HTTP on loopback, as much of one as pulls and pushes need. What it has is in files, so that
//! it is part of the tree that is compared.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Starts one that keeps blobs and manifests in `dir`; the port of it.
///
/// # Errors
/// Those of the sockets.
pub(crate) fn start(dir: PathBuf) -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::Builder::new().spawn(move || {
        for stream in listener.incoming().flatten() {
            let dir = dir.clone();
            // A connection that ends early is one of the faults.
            let _ = std::thread::Builder::new().spawn(move || serve(stream, &dir));
        }
    })?;
    Ok(port)
}

/// Whoever has it is answered.
static ALONE: Mutex<()> = Mutex::new(());
/// How many uploads were begun.
static UPLOADS: AtomicUsize = AtomicUsize::new(0);

/// A request.
struct Asked {
    method: String,
    path: String,
    query: String,
    /// Where the body of an upload begins, of what it says.
    from: Option<usize>,
    body: Vec<u8>,
}

fn serve(stream: TcpStream, dir: &Path) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    while let Some(asked) = read(&mut reader)? {
        // A client that has heard nothing asks again while its first request is still answered.
        let alone = ALONE.lock();
        let (status, headers, body) = answer(&asked, dir)?;
        drop(alone);
        let length = body.len();
        write!(out, "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n{headers}\r\n")?;
        if asked.method != "HEAD" {
            out.write_all(&body)?;
        }
    }
    Ok(())
}

/// The next request; none at the end.
fn read(reader: &mut impl BufRead) -> io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (mut length, mut chunked, mut from) = (0, false, None);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
            "transfer-encoding" => chunked = true,
            "content-range" => from = value.trim().split('-').next().and_then(|from| from.parse().ok()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    while chunked {
        let mut size = String::new();
        reader.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
        let mut piece = vec![0; size + 2];
        reader.read_exact(&mut piece)?;
        body.extend_from_slice(&piece[..size]);
        chunked = size != 0;
    }
    Ok(Some(Asked { method: method.into(), path: path.into(), query: query.replace("%3A", ":"), from, body }))
}

/// Status, header lines and body.
fn answer(asked: &Asked, dir: &Path) -> io::Result<(u16, String, Vec<u8>)> {
    let none = || (404, String::new(), Vec::new());
    let last = asked.path.rsplit('/').next().unwrap_or_default().replace(':', "-");
    if asked.path == "/v2/" {
        return Ok((200, String::new(), Vec::new()));
    }
    // A repository's name is part of what is compared, and no part of a path.
    let kind = if asked.path.contains("/manifests/") { "manifests" } else { "blobs" };
    let known = dir.join(kind).join(&last);
    let header = match kind {
        "manifests" => "content-type: application/vnd.oci.image.manifest.v1+json\r\n",
        _ => "content-type: application/octet-stream\r\n",
    };
    match asked.method.as_str() {
        "GET" | "HEAD" => Ok(fs::read(known).map_or_else(|_| none(), |body| (200, header.into(), body))),
        // What comes of an upload lies in a file of the upload's name until the end.
        "POST" => {
            let name = asked.path.trim_matches('/');
            let number = UPLOADS.fetch_add(1, Ordering::Relaxed);
            Ok((202, format!("location: /{name}/{number}\r\n"), Vec::new()))
        }
        "PATCH" => {
            let upload = dir.join("uploads").join(&last);
            let all = joined(asked, &upload);
            write(dir, &upload, &all)?;
            let end = all.len().saturating_sub(1);
            Ok((202, format!("location: {}\r\nrange: 0-{end}\r\n", asked.path), Vec::new()))
        }
        "PUT" if kind == "manifests" => {
            write(dir, &known, &asked.body)?;
            Ok((201, format!("location: {}\r\n", asked.path), Vec::new()))
        }
        "PUT" => {
            let digest = asked.query.split('&').find_map(|part| part.strip_prefix("digest="));
            let Some(digest) = digest else { return Ok((400, String::new(), Vec::new())) };
            let upload = dir.join("uploads").join(&last);
            // It was finished by a request whose answer was lost.
            if asked.body.is_empty() && !fs::exists(&upload)? {
                return Ok(none());
            }
            let all = joined(asked, &upload);
            write(dir, &dir.join("blobs").join(digest.replace(':', "-")), &all)?;
            let _ = fs::remove_file(upload);
            Ok((201, format!("location: {}\r\n", asked.path), Vec::new()))
        }
        _ => Ok(none()),
    }
}

/// What an upload has with the body of a request: what is sent again takes the place of what came before.
fn joined(asked: &Asked, upload: &Path) -> Vec<u8> {
    let mut all = fs::read(upload).unwrap_or_default();
    if !asked.body.is_empty() {
        all.truncate(asked.from.unwrap_or(0));
        all.extend_from_slice(&asked.body);
    }
    all
}

/// Writes a file below `dir` whole or not at all: a client that has heard nothing sends its request again, by another
/// connection.
fn write(dir: &Path, path: &Path, body: &[u8]) -> io::Result<()> {
    let uploads = dir.join("uploads");
    let draft = uploads.join(format!("draft-{}", UPLOADS.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    fs::create_dir_all(&uploads)?;
    fs::write(&draft, body)?;
    fs::rename(draft, path)
}
