//! The user of programs, if it is not that of the service.

use nix::unistd::{Gid, Uid, User, geteuid};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Kill, set group ids and set user ids: what a service needs that starts and ends programs of another user.
const CAPABILITIES: u64 = 1 << 5 | 1 << 6 | 1 << 7;

/// A user and its group, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunAs {
    uid: Uid,
    gid: Gid,
}

impl RunAs {
    /// The user with this name or id; `None` for an empty text: the user of the service.
    ///
    /// # Errors
    /// Names the user and the cure.
    pub(super) fn named(text: &str) -> Result<Option<Self>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let found = match text.parse() {
            Ok(id) => User::from_uid(Uid::from_raw(id)),
            Err(_) => User::from_name(text),
        };
        let user = found.map_err(|error| format!("`{text}`: {error}"))?;
        let cure = "create it, or name another one";
        let user = user.ok_or_else(|| format!("this machine has no user `{text}`; {cure}"))?;
        Ok(Some(Self { uid: user.uid, gid: user.gid }))
    }

    /// Refuses a user whose programs this process may not start and end.
    ///
    /// # Errors
    /// Names the cure.
    pub(super) fn check(self) -> Result<(), String> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if geteuid() == self.uid || has_capabilities(&status) {
            return Ok(());
        }
        Err("this service may not start programs of another user; run it as root, or give it the capabilities CAP_SETUID, \
             CAP_SETGID and CAP_KILL"
            .to_owned())
    }

    /// For the value of an environment variable.
    pub(super) fn written(self) -> String {
        format!("{}:{}", self.uid, self.gid)
    }

    /// The inverse of [`RunAs::written`].
    pub(super) fn read(text: &str) -> Option<Self> {
        let (uid, gid) = text.split_once(':')?;
        Some(Self { uid: Uid::from_raw(uid.parse().ok()?), gid: Gid::from_raw(gid.parse().ok()?) })
    }

    /// Lets the program run as this user, in its group alone. Programs that change their user, such as sudo, do not get more
    /// rights.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn apply(self, command: &mut Command) -> std::io::Result<()> {
        nix::sys::prctl::set_no_new_privs()?;
        // Removes the supplementary groups, too, if this process runs as root.
        command.uid(self.uid.as_raw()).gid(self.gid.as_raw());
        Ok(())
    }
}

/// Whether a process with this `/proc/…/status` has what is needed.
fn has_capabilities(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    effective & CAPABILITIES == CAPABILITIES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_or_id() {
        assert_eq!(RunAs::named(""), Ok(None));
        let root = RunAs::named("root").unwrap().unwrap();
        assert_eq!((root.written().as_str(), RunAs::named("0")), ("0:0", Ok(Some(root))));
        assert_eq!(RunAs::read(&root.written()), Some(root));
        assert_eq!([RunAs::read(""), RunAs::read("1"), RunAs::read("a:b")], [None, None, None]);
        let unknown = RunAs::named("no-such-user").unwrap_err();
        assert_eq!(unknown, "this machine has no user `no-such-user`; create it, or name another one");
    }

    #[test]
    fn all_three_capabilities_are_needed() {
        let status = |bits: u64| format!("Name:\teverwatch\nCapPrm:\t0\nCapEff:\t{bits:016x}\n");
        assert!(has_capabilities(&status(0xe0)) && has_capabilities(&status(u64::MAX)));
        assert!(!has_capabilities(&status(0x60)) && !has_capabilities(&status(0)) && !has_capabilities(""));
    }
}
