//! A small disk that a test fills up, or that loses power.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

mod ioctl {
    nix::ioctl_read!(shut_down, b'X', 125, u32);
}

/// `EXT4_GOING_FLAGS_NOLOGFLUSH` of Linux: shuts the file system down at once without writing anything.
const WITHOUT_FLUSH: u32 = 2;

/// An ext4 file system in a file, which is mounted until this is dropped.
pub struct SmallDisk {
    pub path: PathBuf,
    image: PathBuf,
}

impl SmallDisk {
    /// Mounts the disk on an empty folder and stores its image beside that folder. Requires root.
    pub fn mount(path: &Path, mebibytes: u64) -> Self {
        let disk = Self { path: path.to_owned(), image: path.with_extension("img") };
        File::create(&disk.image).unwrap().set_len(mebibytes << 20).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&disk.image));
        disk.attach();
        disk
    }

    fn attach(&self) {
        run(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.path));
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }

    /// Full to the last byte.
    pub fn fill(&self) {
        let target = format!("of={}", self.filler().display());
        let filled = Command::new("dd").args(["if=/dev/zero", "bs=4096", &target]).output().unwrap();
        assert!(!filled.status.success(), "the disk has room left");
    }

    pub fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    /// Discards unsynchronized writes, like a power loss, and mounts the disk again. No program may have a
    /// file on it open.
    pub fn lose_power(&self) {
        let root = File::open(&self.path).unwrap();
        let mut flag = WITHOUT_FLUSH;
        #[expect(unsafe_code, reason = "no library has a safe form of this request")]
        // SAFETY: the descriptor is open, and the request reads one number.
        unsafe { ioctl::shut_down(root.as_raw_fd(), &raw mut flag) }.unwrap();
        drop(root);
        run(Command::new("umount").arg(&self.path));
        self.attach();
    }
}

fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?} needs root: {}", String::from_utf8_lossy(&done.stderr));
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
