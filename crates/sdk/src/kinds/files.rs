//! Which files of its machine a service lets observers read and write.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

/// Any folder.
const ANY: &str = "*";

/// What `tail` and `replicate` may do on a service.
#[derive(Debug, Clone, Default)]
pub struct FilesSettings {
    /// Absolute paths of folders whose files may be read; `*` is any.
    pub read: Vec<String>,
    /// Absolute paths of folders in which files may be written and deleted; `*` is any.
    pub write: Vec<String>,
}

/// What is to be done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

impl FilesSettings {
    /// Checks the lists themselves.
    ///
    /// # Errors
    /// Names the key in `[service.files]` and the rule.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (key, list) in [("read", &self.read), ("write", &self.write)] {
            if let Some(folder) = list.iter().find(|it| *it != ANY && !is_plain(Path::new(it))) {
                return Err(format!(
                    "{key}: `{folder}` is not an absolute path without `..`; write one, such as /var/log, or \"*\""
                ));
            }
        }
        Ok(())
    }

    /// The path that a member of a spec names, if it is in an allowed folder. Symbolic links are not followed here:
    /// [`FilesSettings::ensure_real`] checks where a path leads.
    ///
    /// # Errors
    /// Names the member, the path and the cure.
    pub(super) fn path(&self, member: &str, path: &str, access: Access) -> Result<PathBuf, String> {
        let named = Path::new(path);
        if path.contains('\0') || !is_plain(named) {
            let shown = path.replace('\0', "\\0");
            return Err(format!(
                "`{member}`: `{shown}` is not an absolute path without `..`; write the whole path"
            ));
        }
        if !self.includes(named, access) {
            return Err(format!("`{member}`: {}", self.refusal(named, access)));
        }
        Ok(named.to_owned())
    }

    /// Checks a path without symbolic links.
    ///
    /// # Errors
    /// If a link has led out of the allowed folders.
    pub(super) fn ensure_real(&self, real: &Path, access: Access) -> io::Result<()> {
        if self.includes(real, access) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, self.refusal(real, access)))
    }

    /// Opens a regular file to read it. What is checked is the file that was opened, so that no link can be put in
    /// between.
    ///
    /// # Errors
    /// If it cannot be opened, is not a regular file, or is outside of the allowed folders.
    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        // Opening a pipe would wait for its writer.
        let file = File::options()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC)
            .open(path)?;
        if !file.metadata()?.is_file() {
            let told = format!("{} is not a regular file", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, told));
        }
        let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        self.ensure_real(&real, Access::Read)?;
        Ok(file)
    }

    fn includes(&self, path: &Path, access: Access) -> bool {
        let contains = |folder: &String| {
            let folder = Path::new(folder);
            path.starts_with(folder) || folder.canonicalize().is_ok_and(|real| path.starts_with(real))
        };
        self.list(access).iter().any(|folder| folder == ANY || contains(folder))
    }

    fn list(&self, access: Access) -> &[String] {
        match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        }
    }

    fn refusal(&self, path: &Path, access: Access) -> String {
        let key = if access == Access::Read { "read" } else { "write" };
        let path = path.display();
        format!("`{path}` is in no folder of [service.files] {key} of this service; add its folder there")
    }
}

/// Absolute, and never one folder up.
fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|it| matches!(it, Component::RootDir | Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(read: &[&Path]) -> FilesSettings {
        let read = read.iter().map(|it| it.to_str().unwrap().to_owned()).collect();
        FilesSettings { read, write: Vec::new() }
    }

    #[test]
    fn only_files_in_allowed_folders_are_opened_wherever_links_lead() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (file, secret) = (inside.path().join("file"), outside.path().join("secret"));
        std::fs::write(&file, "x").unwrap();
        std::fs::write(&secret, "x").unwrap();
        let link = inside.path().join("link");
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        let here = settings(&[inside.path()]);
        assert!(here.open(&file).is_ok());
        let refused = here.open(&link).unwrap_err().to_string();
        assert!(refused.contains("[service.files] read") && refused.contains("secret"), "{refused}");
        assert!(here.open(&secret).is_err());
        assert!(settings(&[Path::new("*")]).open(&link).is_ok());
        let named = |path: &Path| here.path("path", path.to_str().unwrap(), Access::Read);
        assert!(named(&file).is_ok());
        for wrong in [secret.as_path(), &inside.path().join("../x"), Path::new("file")] {
            let refused = named(wrong).unwrap_err();
            assert!(refused.starts_with("`path`: `"), "{refused}");
        }
        let refused = here.path("to", file.to_str().unwrap(), Access::Write).unwrap_err();
        assert!(refused.contains("[service.files] write"), "{refused}");
        // A folder with the same beginning is another one.
        let beside = PathBuf::from(format!("{}-2/file", inside.path().display()));
        assert!(named(&beside).is_err());
    }

    #[test]
    fn a_pipe_is_refused_at_once_and_lists_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refused = settings(&[folder.path()]).open(&pipe).unwrap_err().to_string();
        assert!(refused.contains("is not a regular file"), "{refused}");
        assert_eq!(settings(&[Path::new("*"), Path::new("/var/log")]).check(), Ok(()));
        for wrong in ["logs", "/var/../etc"] {
            let error = settings(&[Path::new(wrong)]).check().unwrap_err();
            assert!(error.starts_with(&format!("read: `{wrong}`")), "{error}");
        }
    }
}
