//! A world in one line, for the way to a violation.

use std::fmt;

use crate::{
    core::{
        field::{Field, Op},
        tenure::{HoldState, Window},
        time::Time,
        waiters::State,
    },
    world::{Client, NOW, World, in_ticks},
};

fn ticks(time: Time) -> u8 {
    in_ticks(time.left(NOW))
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.data.holder {
            None => write!(f, "free")?,
            Some((client, owner)) => write!(
                f,
                "{client}.{} x{} for {}",
                owner.0, self.data.holds, self.data.left
            )?,
        }
        for ((client, owner), left) in self.data.queue.iter() {
            write!(f, " <- {client}.{} for {left}", owner.0)?;
        }
        for (index, client) in self.clients.iter().enumerate() {
            write!(f, " | {index}:{client}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        if let Some(tenure) = machine.tenure() {
            let window = match tenure.window {
                Window::Open { .. } => "open",
                Window::Closed => "closed",
                Window::Verifying => "verifying",
            };
            write!(
                f,
                " [{} by {} valid {} {window}:",
                tenure.field.0,
                tenure.holder.0,
                ticks(tenure.valid_until)
            )?;
            for (_, hold) in machine.holds().live() {
                let state = match hold.state {
                    HoldState::Given { .. } => "given",
                    _ => "guarded",
                };
                write!(f, " {state}")?;
                if let Some(end) = hold.until {
                    write!(f, "<{}", ticks(end))?;
                }
            }
            write!(f, "]")?;
        }
        for field in machine.fields() {
            write!(f, " {}", Shown(field))?;
        }
        for (key, waiter) in machine.waiters().all() {
            let state = match waiter.state {
                State::Parked { until } => format!("Parked({})", ticks(until)),
                State::Over(outcome) => format!("{outcome:?}"),
                state => format!("{state:?}"),
            };
            write!(f, " {key:?}={}:{state}", waiter.owner.0)?;
        }
        if machine.listens() {
            write!(f, " listens")?;
        }
        for (shown, what) in [
            (!self.is_up, "DOWN"),
            (self.listens_again, "DEAF"),
            (self.is_reconnected, "NEW"),
            (self.lags, "LATE"),
        ] {
            if shown {
                write!(f, " {what}")?;
            }
        }
        let travels = [
            self.queued.len(),
            self.requests.len(),
            self.answers.len(),
            self.stream.len(),
            self.subscribing.len(),
        ];
        if travels.iter().any(|count| *count > 0) {
            write!(
                f,
                " batches, requests, answers, messages, commands {travels:?}"
            )?;
        }
        Ok(())
    }
}

struct Shown<'a>(&'a Field);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.0;
        write!(
            f,
            "({}: <={} for {}",
            field.owner.0,
            field.most(),
            ticks(field.until())
        )?;
        match &field.op {
            Some(Op::Queued(key)) => write!(f, " queued {:?}", key.kind)?,
            Some(Op::Sent(sent)) => {
                write!(f, " {:?}", sent.what)?;
                for (shown, what) in [
                    (sent.is_outdated, "outdated"),
                    (sent.is_doubtful, "doubtful"),
                ] {
                    if shown {
                        write!(f, " {what}")?;
                    }
                }
            }
            None => {}
        }
        if field.free_after > NOW {
            write!(f, " free after {}", ticks(field.free_after))?;
        }
        for (shown, what) in [
            (field.is_asked_in_doubt, "asked in doubt"),
            (field.release_doubt.is_some(), "release in doubt"),
            (field.is_given_up, "given up"),
            (field.is_placed(), "placed"),
            (field.rests_until().is_some(), "rests"),
        ] {
            if shown {
                write!(f, " {what}")?;
            }
        }
        write!(f, ")")
    }
}
