//! The body of a request.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use ureq::SendBody;

use oci_content::interrupt::Interrupt;
use oci_content::meter::Meter;

/// A body of this size or more is announced (RFC 9110, 10.1.1), so that a server which does not want it can say so before it is
/// sent. One that does not know the header costs a second.
const ANNOUNCED: u64 = 1 << 20;

/// What a request brings. It can be sent again, as redirects and failures want it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Payload<'a> {
    /// Nothing, not even a length: GET and HEAD.
    #[default]
    None,
    /// A form. It holds a token, as the authorization header does, so no other host may see it.
    Form(&'a str),
    /// So many bytes, perhaps none.
    Bytes(&'a [u8]),
    /// A part of a file.
    Part(Part<'a>),
}

/// A part of a file, which is read while it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    /// The file.
    pub file: &'a File,
    /// Where the part begins.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
    /// Counts what was read.
    pub meter: &'a Meter,
    /// Asked between pieces.
    pub interrupt: &'a Interrupt,
}

impl Payload<'_> {
    /// The headers that it needs.
    pub(super) fn headers(&self) -> Vec<(&'static str, String)> {
        match self {
            Payload::None => Vec::new(),
            Payload::Form(form) => vec![
                ("content-type", "application/x-www-form-urlencoded".into()),
                ("content-length", form.len().to_string()),
            ],
            Payload::Bytes(bytes) => vec![("content-length", bytes.len().to_string())],
            Payload::Part(part) => {
                let mut headers = vec![("content-length", part.length.to_string())];
                if part.length >= ANNOUNCED {
                    headers.push(("expect", "100-continue".into()));
                }
                headers
            }
        }
    }

    /// Calls `send` with the body.
    pub(super) fn with_body<T>(&self, send: impl FnOnce(SendBody) -> T) -> T {
        match self {
            Payload::None => send(SendBody::none()),
            Payload::Form(form) => send(SendBody::from_reader(&mut form.as_bytes())),
            Payload::Bytes(bytes) => send(SendBody::from_reader(&mut &bytes[..])),
            Payload::Part(part) => {
                let mut part = *part;
                send(SendBody::from_reader(&mut part))
            }
        }
    }
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupt.check().map_err(|e| io::Error::other(e.to_string()))?;
        let most = buffer.len().min(usize::try_from(self.length).unwrap_or(buffer.len()));
        if most == 0 {
            return Ok(0);
        }
        let read = self.file.read_at(&mut buffer[..most], self.offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.offset += read as u64;
        self.length -= read as u64;
        self.meter.add(read as u64);
        Ok(read)
    }
}
