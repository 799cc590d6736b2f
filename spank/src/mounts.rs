//! The mounts of a job that has its own (job_container/tmpfs).
//!
//! slurmstepd is not among them, but what it has `rt` do at the end of a step is about layers in the job's own TmpFS. When no task of the
//! step lives any more, nothing leads there: so a task hands its mount namespace to slurmstepd before its program runs.

use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// Made in slurmstepd before it has tasks, which are its forks.
pub(crate) struct Mounts {
    /// The namespaces of slurmstepd.
    own: [u64; 3],
    /// What a task sends on, and what slurmstepd receives on. An exec closes both.
    sender: UnixDatagram,
    receiver: UnixDatagram,
    of_job: Option<OfJob>,
    /// Directories, and what slurmstepd has at their paths.
    places: Vec<(PathBuf, Option<Place>)>,
}

/// What a task has handed over.
struct OfJob {
    namespace: OwnedFd,
    /// What the step's container is of goes with the job.
    goes: bool,
}

/// A directory, by device and inode.
type Place = (u64, u64);

impl Mounts {
    pub(crate) fn new(places: impl IntoIterator<Item = PathBuf>) -> io::Result<Mounts> {
        let (sender, receiver) = UnixDatagram::pair()?;
        let places = places.into_iter().map(|path| (path.clone(), place(&path))).collect();
        Ok(Mounts { own: namespaces()?, sender, receiver, of_job: None, places })
    }

    /// In the process that will be a task: those of the directories that the job has for itself.
    pub(crate) fn own_places(&self) -> Vec<&Path> {
        let are_own = namespaces().is_ok_and(|[mounts, ..]| mounts != self.own[0]);
        let own = self.places.iter().filter(|(path, of_slurmstepd)| are_own && place(path) != *of_slurmstepd);
        own.map(|(path, _)| path.as_path()).collect()
    }

    /// In the process that will be a task. In another user or PID namespace (namespace/linux) /proc shows other numbers for processes than
    /// `rt` outside of it would look for, and it is not entered. `goes`: what the step's container is of goes with the job.
    pub(crate) fn hand_over(&self, goes: bool) -> io::Result<()> {
        let ([mounts, others @ ..], [own_mounts, own_others @ ..]) = (namespaces()?, self.own);
        if mounts == own_mounts || others != own_others {
            return Ok(());
        }
        let own = File::open("/proc/self/ns/mnt")?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sent = [own.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&sent));
        // One is enough: where many wait already, this one need not.
        net::sendmsg(&self.sender, &[IoSlice::new(&[u8::from(goes)])], &mut control, SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// In slurmstepd: the namespace that a task has handed over, if one has.
    pub(crate) fn of_job(&mut self) -> Option<RawFd> {
        if self.of_job.is_none() {
            self.of_job = receive(&self.receiver);
        }
        self.of_job.as_ref().map(|of_job| of_job.namespace.as_raw_fd())
    }

    /// In slurmstepd: a task has said that what the step's container is of goes with the job.
    pub(crate) fn goes_with_the_job(&mut self) -> bool {
        self.of_job();
        self.of_job.as_ref().is_some_and(|of_job| of_job.goes)
    }
}

/// What waits at `socket`, if something does.
fn receive(socket: &UnixDatagram) -> Option<OfJob> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).ok()?;
    let namespace = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })?;
    Some(OfJob { namespace, goes: byte != [0] })
}

fn place(path: &Path) -> Option<Place> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Which namespaces this process is in: of mounts, processes and users.
fn namespaces() -> io::Result<[u64; 3]> {
    let number = |kind| std::fs::metadata(format!("/proc/self/ns/{kind}")).map(|found| found.ino());
    Ok([number("mnt")?, number("pid")?, number("user")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_handed_over() {
        let mut mounts = Mounts::new([]).unwrap();
        mounts.hand_over(true).unwrap();
        assert_eq!(mounts.of_job(), None, "of slurmstepd's own mounts nothing is to be entered");
        mounts.own[1] += 1;
        mounts.own[0] += 1;
        mounts.hand_over(true).unwrap();
        assert_eq!(mounts.of_job(), None, "processes have other numbers there");
        mounts.own[1] -= 1;
        // Each task does, and none waits.
        for _ in 0..2000 {
            let _ = mounts.hand_over(true);
        }
        let received = mounts.of_job().unwrap();
        let found = std::fs::metadata(format!("/proc/self/fd/{received}")).unwrap().ino();
        assert_eq!(found + 1, mounts.own[0]);
        assert_eq!(mounts.of_job(), Some(received), "for the second call, too");
        assert!(mounts.goes_with_the_job());
    }

    #[test]
    fn places_are_the_jobs_own_or_not() {
        let mut mounts = Mounts::new(["/proc", "/dev", "/not/there"].map(PathBuf::from)).unwrap();
        // As if a mount had come there.
        mounts.places[1].1 = place(Path::new("/"));
        assert_eq!(mounts.own_places(), [] as [&Path; 0], "the mounts are slurmstepd's");
        mounts.own[0] += 1;
        assert_eq!(mounts.own_places(), [Path::new("/dev")]);
        // A job with processes of its own has mounts of its own, too.
        mounts.own[1] += 1;
        assert_eq!(mounts.own_places(), [Path::new("/dev")]);
    }
}
