//! Connections that listen to Ctrl-C and give up on a server that sends next to nothing.
//!
//! ureq's own connections wait in one system call until its timeout ends, 40 seconds, and a signal does not wake threads but
//! the main one. Here every wait is made of short ones, and between them it is asked whether the user wants to stop.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, connect, recv, socket_with, sockopt};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Error as HttpError, Timeout};

use oci_content::interrupt::Interrupt;

/// How long Ctrl-C may go unnoticed.
const SLICE: Duration = Duration::from_millis(100);

/// The rate below which a connection is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeastRate {
    /// Bytes per second; 0: any rate will do.
    pub bytes: u64,
    /// The time over which it is measured. Only time that is spent waiting for the server counts.
    pub over: Duration,
}

impl Default for LeastRate {
    fn default() -> LeastRate {
        LeastRate { bytes: 1 << 10, over: Duration::from_secs(60) }
    }
}

/// Why a connection of ours has ended that neither the server nor the network has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The user asked to stop.
    Interrupted,
    /// The server was slower than this.
    Slow(LeastRate),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Interrupted => f.write_str("interrupted"),
            Ended::Slow(least) => {
                write!(f, "less than {} bytes a second for {} s", least.bytes, least.over.as_secs())
            }
        }
    }
}

impl std::error::Error for Ended {}

impl From<Ended> for HttpError {
    fn from(ended: Ended) -> HttpError {
        HttpError::Io(io::Error::other(ended))
    }
}

/// What [`Ended`] says, where that is behind the error of a read.
pub(super) fn ended(error: &io::Error) -> Option<Ended> {
    error.get_ref()?.downcast_ref().copied()
}

/// Makes the connections of an agent, and looks up its hosts.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    pub interrupt: Interrupt,
    pub least_rate: LeastRate,
}

impl Wire {
    fn check(&self) -> Result<(), HttpError> {
        self.interrupt.check().map_err(|_| Ended::Interrupted.into())
    }

    /// Waits until `socket` is ready, at most to the end of `timeout`.
    fn wait(&self, socket: impl AsFd, ready: PollFlags, end: &End) -> Result<(), HttpError> {
        loop {
            self.check()?;
            let slice = rustix::time::Timespec::try_from(end.slice()?).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&socket, ready)], Some(&slice)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(HttpError::Io(e.into())),
            }
        }
    }

    fn connect_to(&self, address: SocketAddr, end: &End) -> Result<TcpStream, HttpError> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(io::Error::from)?;
        match connect(&socket, &address) {
            Ok(()) => {}
            Err(rustix::io::Errno::INPROGRESS) => {
                self.wait(&socket, PollFlags::OUT, end)?;
                // connect(2): the socket is writable when the connection has been made or refused, and SO_ERROR says which.
                sockopt::socket_error(&socket).and_then(|result| result).map_err(io::Error::from)?;
            }
            Err(e) => return Err(HttpError::Io(e.into())),
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A connection to the first address that takes one. Each may use half of the time that is left, and the last all of it.
    fn connect_to_any(&self, addresses: &[SocketAddr], timeout: NextTimeout) -> Result<TcpStream, HttpError> {
        let whole = End::of(timeout);
        let mut last_error = HttpError::Io(io::ErrorKind::ConnectionRefused.into());
        for (n, address) in addresses.iter().enumerate() {
            let end = if n + 1 == addresses.len() { whole } else { whole.half() };
            match self.connect_to(*address, &end) {
                Ok(stream) => return Ok(stream),
                Err(HttpError::Io(e)) if ended(&e).is_some() => return Err(HttpError::Io(e)),
                Err(e) => last_error = e,
            }
        }
        Err(last_error)
    }
}

impl<In: Transport> Connector<In> for Wire {
    type Out = Either<In, Connection>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, HttpError> {
        if let Some(through_proxy) = chained {
            return Ok(Some(Either::A(through_proxy)));
        }
        let config = details.config;
        Ok(Some(Either::B(Connection {
            stream: self.connect_to_any(&details.addrs, details.timeout)?,
            buffers: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()),
            wire: self.clone(),
            reading: Pace::default(),
            writing: Pace::default(),
        })))
    }
}

impl Resolver for Wire {
    /// getaddrinfo(3) waits for name servers as long as it likes, so it does it in a thread that can be left behind.
    fn resolve(&self, uri: &Uri, _: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, HttpError> {
        let host = uri.host().ok_or(HttpError::HostNotFound)?.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        let mut addresses = self.empty();
        if let Ok(address) = host.parse() {
            addresses.push(SocketAddr::new(address, port));
            return Ok(addresses);
        }
        let (answer, answers) = mpsc::channel();
        let look_up = move || {
            let found = (host.as_str(), port).to_socket_addrs();
            // Nobody listens any more where the user asked to stop.
            let _ = answer.send(found.map(Vec::from_iter));
        };
        std::thread::Builder::new().name("name service".to_owned()).spawn(look_up)?;
        let end = End::of(timeout);
        let found = loop {
            self.check()?;
            match answers.recv_timeout(end.slice()?) {
                Ok(found) => break found?,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(HttpError::HostNotFound),
            }
        };
        for address in found.into_iter().take(16) {
            addresses.push(address);
        }
        if addresses.is_empty() { Err(HttpError::HostNotFound) } else { Ok(addresses) }
    }
}

/// When a wait has to end.
#[derive(Debug, Clone, Copy)]
struct End {
    at: Option<Instant>,
    reason: Timeout,
}

impl End {
    fn of(timeout: NextTimeout) -> End {
        let at =
            if timeout.after.is_not_happening() { None } else { Instant::now().checked_add(*timeout.after) };
        End { at, reason: timeout.reason }
    }

    fn half(self) -> End {
        let now = Instant::now();
        End { at: self.at.map(|at| now + at.saturating_duration_since(now) / 2), ..self }
    }

    /// How long to wait at a time; an error once the end has come.
    fn slice(self) -> Result<Duration, HttpError> {
        let left = self.at.map_or(SLICE, |at| at.saturating_duration_since(Instant::now()));
        if left.is_zero() { Err(HttpError::Timeout(self.reason)) } else { Ok(left.min(SLICE)) }
    }
}

/// What came, or went, while the server was waited for.
#[derive(Debug, Default)]
struct Pace {
    waited: Duration,
    bytes: u64,
}

impl Pace {
    fn add(&mut self, bytes: usize, waited: Duration, least: LeastRate) -> Result<(), HttpError> {
        self.waited += waited;
        self.bytes += bytes as u64;
        if self.waited < least.over {
            return Ok(());
        }
        let slow = (self.bytes as f64) < least.bytes as f64 * self.waited.as_secs_f64();
        *self = Pace::default();
        if slow { Err(Ended::Slow(least).into()) } else { Ok(()) }
    }
}

/// A connection to a server or a proxy.
pub(super) struct Connection {
    stream: TcpStream,
    buffers: LazyBuffers,
    wire: Wire,
    /// Since something was sent last: of one answer. A registry may think for a while about each of many small requests.
    reading: Pace,
    /// Since something came last.
    writing: Pace,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.stream).finish()
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), HttpError> {
        self.reading = Pace::default();
        let mut sent = 0;
        while sent < amount {
            let rest = &self.buffers.output()[sent..amount];
            let (n, waited) =
                transfer(&self.wire, &self.stream, PollFlags::OUT, timeout.for_write(), || {
                    (&self.stream).write(rest)
                })?;
            if n == 0 {
                return Err(HttpError::Io(io::ErrorKind::WriteZero.into()));
            }
            self.writing.add(n, waited, self.wire.least_rate)?;
            sent += n;
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, HttpError> {
        self.writing = Pace::default();
        let input = self.buffers.input_append_buf();
        let (n, waited) = transfer(&self.wire, &self.stream, PollFlags::IN, timeout.for_read(), || {
            (&self.stream).read(input)
        })?;
        self.buffers.input_appended(n);
        self.reading.add(n, waited, self.wire.least_rate)?;
        Ok(n > 0)
    }

    /// False where the server has ended the connection, or has sent what nobody asked for.
    fn is_open(&mut self) -> bool {
        let peeked = recv(&self.stream, &mut [0; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        peeked.map(|_| ()) == Err(rustix::io::Errno::AGAIN)
    }
}

/// Runs `io` until it moves something, waiting for the socket in between; with the time that was spent waiting.
fn transfer(
    wire: &Wire,
    socket: &TcpStream,
    ready: PollFlags,
    timeout: NextTimeout,
    mut io: impl FnMut() -> io::Result<usize>,
) -> Result<(usize, Duration), HttpError> {
    let start = Instant::now();
    let end = End::of(timeout);
    loop {
        // What comes without a pause is not waited for, and has its end as well.
        end.slice()?;
        match io() {
            Ok(n) => return Ok((n, start.elapsed())),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => wire.wait(socket, ready, &end)?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(HttpError::Io(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowness_is_measured_over_time_that_is_spent_waiting() {
        let least = LeastRate { bytes: 100, over: Duration::from_secs(10) };
        let second = Duration::from_secs(1);
        let run = |bytes: usize| {
            let mut pace = Pace::default();
            (0..30).find_map(|n| pace.add(bytes, second, least).err().map(|_| n))
        };
        assert_eq!(run(99), Some(9));
        assert_eq!(run(100), None);
        let any = LeastRate { bytes: 0, ..least };
        assert!((0..100).all(|_| Pace::default().add(0, second, any).is_ok()));
    }
}
