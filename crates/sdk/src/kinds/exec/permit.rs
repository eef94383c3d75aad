//! What a spec of `exec` may have: which program, which environment, which folder. Knows no process.

use super::cgroup::Cgroups;
use super::confinement::{Confinement, ResourceLimits};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Any program, or any name that does no harm.
const ANY: &str = "*";

/// The names that programs get from the service's own environment unless the configuration says otherwise.
const ENV_PASS: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Names by which a program loads or runs code that its caller chooses. A `*` at the end: all that begin so.
const NEVER: [&str; 44] = [
    "LD_*",
    "DYLD_*",
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "RES_OPTIONS",
    "HOSTALIASES",
    "MALLOC_*",
    "BASH_*",
    "ENV",
    "PS4",
    "PROMPT_COMMAND",
    "SHELLOPTS",
    "BASHOPTS",
    "IFS",
    "CDPATH",
    "ZDOTDIR",
    "PYTHON*",
    "PERL5*",
    "PERLLIB",
    "PERLIO*",
    "RUBY*",
    "GEM_*",
    "BUNDLE_*",
    "NODE_*",
    "NPM_CONFIG_*",
    "JAVA_*",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "LUA_*",
    "GIT_*",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "LESSOPEN",
    "LESSCLOSE",
    "TERMINFO*",
    "OPENSSL_*",
    "EVERWATCH_*",
    "TRACE*",
];

/// `[service.exec]`: what the `exec` of a service may do.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecSettings {
    /// Absolute paths of programs that may be started, as they are written in `argv[0]`; `*` is any program, found
    /// by `PATH` if it is not absolute.
    pub allow: Vec<String>,
    /// Names of the service's environment that programs get; they get no others.
    pub env_pass: Vec<String>,
    /// Names that a spec may set; `*` is any except those by which programs load code.
    pub env_allow: Vec<String>,
    /// User of the programs, as a name or an id; empty: that of the service.
    pub user: String,
    /// Folder of a control group (version 2) in which each program gets a group of its own; empty: programs stay in
    /// the group of the service.
    pub cgroup: String,
    /// What the kernel lets the processes of a program have.
    pub limits: ResourceLimits,
    /// Silence of the service after which its children are killed.
    #[serde(skip, default = "fence_after")]
    pub fence_after: Duration,
}

fn fence_after() -> Duration {
    Duration::from_secs(5)
}

impl Default for ExecSettings {
    /// Allows no program, passes the variables in `ENV_PASS`, and lets specs set none.
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            env_pass: ENV_PASS.map(str::to_owned).into(),
            env_allow: Vec::new(),
            user: String::new(),
            cgroup: String::new(),
            limits: ResourceLimits::default(),
            fence_after: fence_after(),
        }
    }
}

impl ExecSettings {
    /// Checks the values themselves: a manager reads them as well, on another machine.
    ///
    /// # Errors
    /// Names the key in `[service.exec]` and the rule.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(program) = self.allow.iter().find(|it| *it != ANY && !Path::new(it).is_absolute()) {
            return Err(format!(
                "allow: `{program}` is not an absolute path; write one, such as /bin/{program}, or \"*\""
            ));
        }
        if let Some(name) = self.env_pass.iter().find(|it| !is_name(it)) {
            return Err(format!("env_pass: `{name}` is not the name of a variable"));
        }
        if let Some(name) = self.env_allow.iter().find(|it| *it != ANY && !is_name(it)) {
            return Err(format!("env_allow: `{name}` is not the name of a variable, nor \"*\""));
        }
        if let Some(name) = self.env_allow.iter().find(|it| is_never_allowed(it)) {
            return Err(format!("env_allow: {}; remove it", never(name)));
        }
        self.limits.check(!self.user.is_empty()).map_err(|why| format!("limits.{why}"))?;
        self.cgroups().map(drop)
    }

    /// Checks that this process may confine programs as the values say, and prepares the folder of control groups.
    ///
    /// # Errors
    /// Names the key in `[service.exec]` and the cure.
    pub(crate) fn prepare(&self) -> Result<(), String> {
        self.confinement()?.check()?;
        self.cgroups()?.map_or(Ok(()), |it| it.prepare()).map_err(|why| format!("cgroup: {why}"))
    }

    /// The user and the limits of programs.
    ///
    /// # Errors
    /// Names the key of `[service.exec]` and the cure.
    pub(super) fn confinement(&self) -> Result<Confinement, String> {
        Confinement::new(&self.user, self.limits)
    }

    /// Where programs get control groups, if they do.
    ///
    /// # Errors
    /// Names the key of `[service.exec]` and the cure.
    pub(super) fn cgroups(&self) -> Result<Option<Cgroups>, String> {
        Cgroups::new(&self.cgroup, self.limits)
    }

    /// The program that `argv[0]` means.
    ///
    /// # Errors
    /// Names the program and the cure.
    pub(super) fn program(&self, named: &str, cwd: Option<&Path>) -> Result<PathBuf, String> {
        let any = self.allow.iter().any(|it| it == ANY);
        let path = Path::new(named);
        if path.is_absolute() && (any || self.allow.iter().any(|it| it == named)) {
            return Ok(path.to_owned());
        }
        if !any {
            let cure = "add its absolute path there, and write that path in `argv`";
            return Err(format!("`{named}` is not in [service.exec] allow of this service; {cure}"));
        }
        find(path, cwd, std::env::var_os("PATH").as_deref()).ok_or_else(|| {
            format!("no program `{named}` in the PATH of this service; write its absolute path")
        })
    }

    /// The environment of the program, without what Everwatch adds.
    ///
    /// # Errors
    /// Names the variable and the cure.
    pub(super) fn environment(
        &self,
        definition: &BTreeMap<String, String>,
        of_service: impl Fn(&str) -> Option<OsString>,
    ) -> Result<BTreeMap<String, OsString>, String> {
        let passed = self.env_pass.iter().filter_map(|name| Some((name.clone(), of_service(name)?)));
        let mut all: BTreeMap<_, _> = passed.collect();
        for (name, value) in definition {
            if !is_name(name) || value.contains('\0') {
                return Err(format!("`env`: `{name}` has a bad name, or a NUL byte in its value; fix it"));
            }
            if is_never_allowed(name) {
                return Err(format!("`env`: {}; remove it from the spec", never(name)));
            }
            if !self.env_allow.iter().any(|it| it == ANY || it == name) {
                return Err(format!(
                    "`env`: `{name}` is not in [service.exec] env_allow of this service; add it there or remove it \
                     from the spec"
                ));
            }
            all.insert(name.clone(), value.into());
        }
        Ok(all)
    }
}

/// The folder that a spec names.
///
/// # Errors
/// If it is not absolute: nothing makes that better.
pub(super) fn folder(cwd: Option<&str>) -> Result<Option<&Path>, String> {
    match cwd.map(Path::new) {
        Some(path) if !path.is_absolute() => {
            Err(format!("`cwd`: `{}` is not an absolute path; write the whole path", path.display()))
        }
        path => Ok(path),
    }
}

fn never(name: &str) -> String {
    format!(
        "`{name}` can never be set by a spec, because it makes programs load code, or Everwatch sets it itself"
    )
}

/// Whether a variable can have this name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0', '*'])
}

fn is_never_allowed(name: &str) -> bool {
    NEVER.iter().any(|never| match never.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *never,
    })
}

/// As a shell finds it: by `PATH`, or from the folder that it is to run in.
fn find(named: &Path, cwd: Option<&Path>, path: Option<&OsStr>) -> Option<PathBuf> {
    if named.components().count() > 1 || named.starts_with(".") {
        let here = cwd.map(Path::to_owned).or_else(|| std::env::current_dir().ok())?;
        return Some(here.join(named)).filter(|it| is_program(it));
    }
    let folders = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    let mut all = std::env::split_paths(folders).filter(|it| it.is_absolute()).map(|it| it.join(named));
    all.find(|it| is_program(it))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(allow: &[&str], env_allow: &[&str]) -> ExecSettings {
        let own = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
        ExecSettings { allow: own(allow), env_allow: own(env_allow), ..ExecSettings::default() }
    }
    fn set(settings: &ExecSettings, name: &str) -> Result<Vec<String>, String> {
        let definition = [(name.to_owned(), "x".to_owned())].into();
        let of_service =
            |name: &str| ["PATH", "EVERWATCH_BROKER__URL"].contains(&name).then(|| "service's".into());
        settings.environment(&definition, of_service).map(|all| all.into_keys().collect())
    }

    #[test]
    fn a_program_gets_only_what_is_passed_and_what_its_spec_may_set() {
        assert_eq!(set(&settings(&[], &["MODE"]), "MODE").unwrap(), ["MODE", "PATH"]);
        let refused = set(&settings(&[], &["MODE"]), "OTHER").unwrap_err();
        assert!(refused.contains("`OTHER`") && refused.contains("env_allow"), "{refused}");
        assert_eq!(set(&settings(&[], &["*"]), "OTHER").unwrap(), ["OTHER", "PATH"]);
        assert!(set(&settings(&[], &["*"]), "A=B").is_err());
    }

    #[test]
    fn what_loads_code_is_never_set_even_if_it_is_listed() {
        for name in [
            "LD_PRELOAD",
            "BASH_ENV",
            "ENV",
            "PYTHONSTARTUP",
            "BASH_FUNC_ls%%",
            "NODE_OPTIONS",
            "EVERWATCH_EPOCH",
        ] {
            for allowed in ["*", name] {
                let refused = set(&settings(&[], &[allowed]), name).unwrap_err();
                assert!(refused.contains(name) && refused.contains("remove it"), "{refused}");
            }
            assert!(settings(&[], &[name]).check().unwrap_err().starts_with("env_allow: "), "{name}");
        }
    }

    #[test]
    fn only_absolute_paths_of_the_list_are_started() {
        let some = settings(&["/bin/sh"], &[]);
        assert_eq!(some.program("/bin/sh", None).unwrap(), Path::new("/bin/sh"));
        for other in ["sh", "/bin/../bin/sh", "/bin/cat", "./sh"] {
            let refused = some.program(other, None).unwrap_err();
            assert!(refused.contains(other) && refused.contains("[service.exec] allow"), "{refused}");
        }
        assert!(settings(&["sh"], &[]).check().unwrap_err().contains("`sh` is not an absolute path"));
        assert_eq!((some.check(), settings(&["*"], &["*"]).check()), (Ok(()), Ok(())));
    }

    #[test]
    fn where_every_program_is_allowed_names_become_absolute_paths() {
        let any = settings(&["*"], &[]);
        let found = any.program("sh", None).unwrap();
        assert!(found.is_absolute() && found.ends_with("sh"), "{}", found.display());
        assert_eq!(any.program("./sh", Some(Path::new("/bin"))).unwrap(), Path::new("/bin/./sh"));
        let refused = any.program("no-such-program", None).unwrap_err();
        assert!(refused.contains("`no-such-program`") && refused.contains("PATH"), "{refused}");
        // An empty entry or a relative one would be the folder that the service happens to be in.
        assert_eq!(find(Path::new("Cargo.toml"), None, Some(OsStr::new(":.:"))), None);
    }

    #[test]
    fn a_folder_is_absolute() {
        assert_eq!(folder(Some("/tmp")).unwrap(), Some(Path::new("/tmp")));
        assert!(folder(Some("tmp")).unwrap_err().contains("`tmp` is not an absolute path"));
    }
}
