//! A terminal for tests, by tmux: sends keys and reads the screen.

use crate::cluster::everwatch;
use crate::wait::wait_for;
use std::process::{Command, Output};

/// A shell in a terminal of its own; ended with it.
pub struct Terminal {
    socket: String,
}

impl Terminal {
    /// Opens a shell with this number of columns and rows, whose commands use this manager.
    pub async fn open(server: &str, (columns, rows): (u16, u16)) -> Self {
        let terminal = Self { socket: format!("everwatch-{}", uuid::Uuid::new_v4().simple()) };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let folder = everwatch().parent().unwrap().display().to_string();
        let shell = format!("env PS1='ready> ' PATH={folder}:$PATH EVERWATCH_SERVER={server} sh");
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, &shell]);
        terminal.until("the shell", |screen| screen.contains("ready>")).await;
        terminal
    }

    fn try_tmux(&self, arguments: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.args(["-u", "-L", &self.socket]).args(arguments).env_remove("TMUX").env_remove("NO_COLOR");
        tmux.output().unwrap_or_else(|error| panic!("tmux: {error}: run ./tests/run"))
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = self.try_tmux(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Types this text as it is.
    pub fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Presses keys by their names, as Enter, Escape, Tab, Down.
    pub fn presses(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Runs a command line.
    pub fn runs(&self, line: &str) {
        self.types(line);
        self.presses(&["Enter"]);
    }

    pub fn resize(&self, (columns, rows): (u16, u16)) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The screen including its color codes.
    pub fn coloured(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    /// Waits until the screen shows this.
    pub async fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        wait_for(what, || async {
            let screen = self.screen();
            if is_there(&screen) { Ok(screen) } else { Err(format!("\n{screen}")) }
        })
        .await
    }

    /// The process that runs in the shell now.
    pub fn process(&self) -> i32 {
        let shell = self.tmux(&["list-panes", "-F", "#{pane_pid}"]).trim().to_owned();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        children.trim().parse().unwrap_or_else(|_| panic!("one process runs in the shell: {children}"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.try_tmux(&["kill-server"]);
    }
}
