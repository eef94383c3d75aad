//! Hands a descriptor to the outer helper over its standard input, which is a socket then.
//!
//! The obvious approach is to let the helper inherit the descriptor. But a process inherits everything that is open
//! without close-on-exec at the moment it is started, so a program that another thread starts at that moment would get
//! the descriptor too.

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{Error, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};

/// The letter that carries the descriptor.
const CARRIER: &[u8] = b"F";

/// Sends a descriptor; never waits, if it is the first that is sent over this socket.
pub(super) fn send(socket: impl AsFd, descriptor: impl AsFd) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Error::other("no room for a descriptor"));
    }
    sendmsg(socket, &[IoSlice::new(CARRIER)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the descriptor that [`send`] has sent.
pub(super) fn receive(socket: impl AsFd) -> Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut carrier = [0; CARRIER.len()];
    recvmsg(socket, &mut [IoSliceMut::new(&mut carrier)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.ok_or_else(|| Error::other("the service sent no descriptor"))
}

/// Lets the processes that are started from now on inherit it; answers the number under which they have it.
pub(super) fn pass_on(descriptor: &OwnedFd) -> Result<RawFd> {
    fcntl_setfd(descriptor, FdFlags::empty())?;
    Ok(descriptor.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_descriptor_arrives_before_the_letters_that_follow_it() {
        let (service, mut helper) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        send(&service, &writer).unwrap();
        (&service).write_all(b".").unwrap();
        drop(writer);
        let mut received = std::fs::File::from(receive(&helper).unwrap());
        received.write_all(b"through").unwrap();
        drop(received);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        let mut letter = [0];
        helper.read_exact(&mut letter).unwrap();
        assert_eq!(&letter, b".");
        (&service).write_all(b"x").unwrap();
        assert!(receive(&helper).unwrap_err().to_string().contains("sent no descriptor"));
    }
}
