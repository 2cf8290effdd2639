//! A terminal, with a shell in it.

use std::{
    fs::File,
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use testbed::{Server, eventually};

use crate::GENEROUS;

/// The prompt with which a shell begins.
const FIRST_PROMPT: &str = "begins:";

/// A pseudo-terminal, and the program that leads the session on it.
pub struct Pty {
    master: File,
    shown: Arc<Mutex<String>>,
    seen: usize,
    child: Child,
}

impl Pty {
    /// A shell with job control, whose commands find the tool as `$T`.
    pub async fn shell(server: &Server) -> Self {
        let shell = ["bash", "--norc", "--noprofile", "--noediting", "-i"];
        let mut pty = Self::start(server, &shell);
        // The shell forgets what is typed before its first prompt.
        pty.shows(FIRST_PROMPT).await;
        // The words of the command itself are not its output.
        pty.line("PS1='a'sks:; stty -echo; set -b; echo rea''dy");
        pty.shows("ready\r\n").await;
        pty
    }

    pub fn start(server: &Server, words: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options()
            .read(true)
            .write(true)
            .custom_flags(i32::try_from(OpenptFlags::NOCTTY.bits()).unwrap())
            .open(path.to_str().unwrap())
            .unwrap();
        let child = Command::new("setsid")
            .args(["--ctty", "env", "--default-signal"])
            .args(words)
            .env("REDIS_URL", server.url())
            .env("T", env!("CARGO_BIN_EXE_rlock"))
            .env("TERM", "xterm")
            .env("PS1", FIRST_PROMPT)
            .env_remove("NO_COLOR")
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        let master = File::from(master);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut reader, text) = (master.try_clone().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                let read = String::from_utf8_lossy(&bytes[..length]);
                text.lock().unwrap().push_str(&read);
            }
        });
        Self {
            master,
            shown,
            seen: 0,
            child,
        }
    }

    pub fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the shell asks for a line, which it may forget that was typed before.
    pub async fn asks(&mut self) {
        self.shows("asks:").await;
    }

    /// Types a line.
    pub fn line(&mut self, line: &str) {
        self.keys(&format!("{line}\n"));
    }

    /// Waits until `text` is shown after what was waited for before; returns what came until then.
    pub async fn shows(&mut self, text: &str) -> String {
        let (shown, from) = (self.shown.clone(), self.seen);
        let mut found = None;
        let looking = eventually("it is shown", GENEROUS, async || {
            let shown = shown.lock().unwrap();
            found = shown[from..].find(text).map(|at| from + at + text.len());
            found.is_some()
        });
        let looked = tokio::time::timeout(GENEROUS / 2, looking).await;
        let shown = self.shown.lock().unwrap();
        assert!(
            looked.is_ok(),
            "{text:?} is not shown: {:?}",
            &shown[from..]
        );
        self.seen = found.unwrap();
        shown[from..self.seen].to_owned()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
