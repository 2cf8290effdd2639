//! Standard output and standard error.

use std::io::{self, ErrorKind, Write};

use crate::{Failure, exit};

/// Prints a line to standard output. If the reader has closed the pipe, the program ends without a message, as SIGPIPE would
/// end it.
pub fn say(line: impl AsRef<str>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    written(writeln!(out, "{}", line.as_ref()).and_then(|()| out.flush()))
}

/// Converts the result of a write to standard output.
pub fn written(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::silent(exit::BROKEN_PIPE),
        _ => Failure {
            code: exit::FAILED,
            message: format!("the output cannot be written: {error}"),
        },
    })
}

/// Prints a line to standard error. Ignores write errors.
pub fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "rlock: {message}");
}
