// SPDX-License-Identifier: GPL-2.0
//! One process for each recording, one call at a time in the order of the recordings' clock.

use std::{
    io::{BufRead, BufReader, Write},
    os::{
        fd::{FromRawFd, IntoRawFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    nodes::Nodes,
    play::Player,
    record::{Op, Trace},
    report::Outcome,
    sys,
};

/// A call that takes longer hangs (the emulated machine is slow, but not that slow).
const PATIENCE: Duration = Duration::from_secs(120);

/// The parent's request to a child: make one call.
#[derive(Serialize, Deserialize)]
struct Order {
    index: usize,
    /// RM clients that other processes made: recorded handle and real one.
    foreign: Vec<(u32, u32)>,
    /// Objects of other processes that do not exist here, or exist again.
    missing: Vec<((u32, u32), bool)>,
    /// Whether other processes of the replay are alive.
    company: bool,
    /// Processes of the recordings, once: recorded id and real one.
    pids: Vec<(u32, u32)>,
    /// The process that keeps the descriptor that this call gets out of a socket, and its number.
    parcel: Option<(i32, i32)>,
    /// Descriptors of this process that others have taken by now.
    taken: Vec<i32>,
}

/// A descriptor that went into a socket and has not come out yet.
struct Parcel {
    path: String,
    trace: usize,
    kept: i32,
}

/// A replayed process.
struct Child {
    pid: i32,
    orders: UnixStream,
    outcomes: BufReader<UnixStream>,
    news: Vec<(u32, u32)>,
    missing: Vec<((u32, u32), bool)>,
    pids: Vec<(u32, u32)>,
    taken: Vec<i32>,
    begun: bool,
    alive: bool,
}

/// All calls of several recordings in the order of their clock: recording and call. A process's own
/// order counts before the clock, since its threads' calls return in another order than they began;
/// and a descriptor is sent before it is received, whatever that order makes of the clock.
pub fn merged(traces: &[Trace]) -> Vec<(usize, usize)> {
    let mut next = vec![0; traces.len()];
    let mut order = Vec::new();
    // Recordings and paths of descriptors that are under way.
    let mut sent: Vec<(usize, &str)> = Vec::new();
    loop {
        let ahead = |t: usize| traces[t].records.get(next[t]);
        let waits = |t: usize| {
            let Some(Op::Receive { path, .. }) = ahead(t).map(|r| &r.op) else {
                return false;
            };
            let comes = |o: usize| {
                let rest = traces[o].records.get(next[o]..).unwrap_or_default();
                rest.iter()
                    .any(|r| matches!(&r.op, Op::Send { path: p, .. } if p == path))
            };
            !sent.iter().any(|&(from, p)| from != t && p == path)
                && (0..traces.len()).any(|o| o != t && comes(o))
        };
        let mut ready: Vec<(f64, usize)> = (0..traces.len())
            .filter_map(|t| Some((ahead(t)?.time, t)))
            .collect();
        ready.sort_by(|a, b| a.0.total_cmp(&b.0));
        let chosen = ready.iter().find(|(_, t)| !waits(*t)).or(ready.first());
        let Some(&(_, t)) = chosen else { return order };
        match ahead(t).map(|r| &r.op) {
            Some(Op::Send { path, .. }) => sent.push((t, path)),
            Some(Op::Receive { path, .. }) => {
                let taken = sent.iter().position(|&(from, p)| from != t && p == path);
                taken.map(|at| sent.remove(at));
            }
            _ => {}
        }
        order.push((t, next[t]));
        next[t] += 1;
    }
}

/// Replays recordings on nodes. `after` is called after each call with the recording's number, the
/// call's number and what became of it. The processes have exited when this returns.
pub fn replay(
    traces: &[Trace],
    order: &[(usize, usize)],
    nodes: &[Nodes],
    mut after: impl FnMut(usize, usize, Outcome),
) -> Result<(), String> {
    let mut children: Vec<Child> = Vec::new();
    for (trace, nodes) in traces.iter().zip(nodes) {
        let child = start(trace, nodes).map_err(|e| format!("cannot start a process: {e}"))?;
        children.push(child);
    }
    let number = |pid: i32| u32::try_from(pid).unwrap_or(0);
    let pids: Vec<_> = traces
        .iter()
        .zip(&children)
        .filter_map(|(t, c)| Some((number(t.records.first()?.tid), number(c.pid))))
        .collect();
    for child in &mut children {
        child.pids.clone_from(&pids);
    }
    let mut left: Vec<usize> = vec![0; traces.len()];
    for (t, _) in order {
        left[*t] += 1;
    }
    let mut result = Ok(());
    let mut children: Vec<Option<Child>> = children.into_iter().map(Some).collect();
    let mut parcels: Vec<Parcel> = Vec::new();
    for &(t, index) in order {
        let others = children.iter().enumerate().filter(|(i, _)| *i != t);
        let company = others.flat_map(|(_, child)| child).any(|child| child.begun);
        let parcel = match &traces[t].records[index].op {
            Op::Receive { path, .. } => delivered(&mut parcels, &mut children, t, path),
            _ => None,
        };
        let Some(child) = &mut children[t] else {
            continue;
        };
        child.begun = true;
        let outcome = match child.ask(index, company, parcel) {
            Ok(outcome) => outcome,
            Err(e) => {
                let name = &traces[t].name;
                result = Err(format!("the process of {name} failed at call {index}: {e}"));
                child.alive = false;
                break;
            }
        };
        if let (Some(kept), Op::Send { path, .. }) = (outcome.sent, &traces[t].records[index].op) {
            parcels.push(Parcel {
                path: path.clone(),
                trace: t,
                kept,
            });
        }
        for (other, child) in children.iter_mut().enumerate() {
            if let (true, Some(child)) = (other != t, child) {
                child.news.extend(&outcome.clients);
                child.missing.extend(&outcome.missing);
            }
        }
        after(t, index, outcome);
        left[t] -= 1;
        if left[t] == 0 {
            // As the recorded one did, it exits with everything open that is still open.
            if let Some(child) = children[t].take() {
                child.end();
            }
        }
    }
    for child in children.into_iter().flatten() {
        child.end();
    }
    result
}

/// The oldest descriptor of such a file that another process has sent: who keeps it, and as which.
/// That it may be closed there is said with the next order.
fn delivered(
    parcels: &mut Vec<Parcel>,
    children: &mut [Option<Child>],
    to: usize,
    path: &str,
) -> Option<(i32, i32)> {
    let fits = |parcel: &Parcel| parcel.trace != to && parcel.path == path;
    let parcel = parcels.remove(parcels.iter().position(fits)?);
    let sender = children[parcel.trace].as_mut()?;
    sender.taken.push(parcel.kept);
    Some((sender.pid, parcel.kept))
}

impl Child {
    fn ask(
        &mut self,
        index: usize,
        company: bool,
        parcel: Option<(i32, i32)>,
    ) -> Result<Outcome, String> {
        let order = Order {
            index,
            foreign: std::mem::take(&mut self.news),
            missing: std::mem::take(&mut self.missing),
            company,
            pids: std::mem::take(&mut self.pids),
            parcel,
            taken: std::mem::take(&mut self.taken),
        };
        let mut line = serde_json::to_string(&order).map_err(|e| e.to_string())?;
        line.push('\n');
        self.orders
            .write_all(line.as_bytes())
            .map_err(|e| e.to_string())?;
        let mut answer = String::new();
        match self.outcomes.read_line(&mut answer) {
            Ok(0) => Err("it ended".to_owned()),
            Ok(_) => serde_json::from_str(&answer).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Lets the process exit, with everything open that the recording left open.
    fn end(self) {
        if !self.alive {
            // It hangs or is dead; a hanging one dies as soon as it can.
            let _ = sys::kill(self.pid, libc::SIGKILL);
        }
        drop(self.orders);
        drop(self.outcomes);
        let _ = sys::wait(self.pid);
    }
}

fn start(trace: &Trace, nodes: &Nodes) -> Result<Child, String> {
    let (parent, child) = UnixStream::pair().map_err(|e| e.to_string())?;
    let pid = sys::fork().map_err(|e| format!("fork: errno {e}"))?;
    if pid == 0 {
        let code = i32::from(serve(trace, nodes, child).is_err());
        sys::exit_now(code);
    }
    drop(child);
    parent
        .set_read_timeout(Some(PATIENCE))
        .map_err(|e| e.to_string())?;
    let outcomes = BufReader::new(parent.try_clone().map_err(|e| e.to_string())?);
    Ok(Child {
        pid,
        orders: parent,
        outcomes,
        news: Vec::new(),
        missing: Vec::new(),
        pids: Vec::new(),
        taken: Vec::new(),
        begun: false,
        alive: true,
    })
}

/// The child: makes the calls it is told to make until the parent goes away.
fn serve(trace: &Trace, nodes: &Nodes, stream: UnixStream) -> Result<(), String> {
    let fd =
        sys::dup_above(stream.into_raw_fd(), sys::OWN_FDS).map_err(|e| format!("errno {e}"))?;
    sys::close_between(3, sys::OWN_FDS - 1);
    sys::die_with_parent();
    // SAFETY: `dup_above` made the descriptor for us alone.
    let mut answers = unsafe { UnixStream::from_raw_fd(fd) };
    let copy = sys::dup_above(fd, sys::OWN_FDS).map_err(|e| format!("errno {e}"))?;
    // SAFETY: this copy, too, was made for us alone.
    let orders = BufReader::new(unsafe { UnixStream::from_raw_fd(copy) });
    let mut player = Player::new(&trace.records, nodes.clone());
    for line in orders.lines() {
        let line = line.map_err(|e| e.to_string())?;
        let order: Order = serde_json::from_str(&line).map_err(|e| e.to_string())?;
        for (recorded, real) in order.foreign {
            player.space.add_foreign(recorded, real);
        }
        for (recorded, real) in order.pids {
            player.space.add_pid(recorded, real);
        }
        for (name, missing) in order.missing {
            player.space.set_foreign(name, missing);
        }
        for kept in order.taken {
            let _ = sys::close(kept);
        }
        player.parcel = order.parcel;
        let outcome = player.play(order.index, order.company);
        let mut line = serde_json::to_string(&outcome).map_err(|e| e.to_string())?;
        line.push('\n');
        answers
            .write_all(line.as_bytes())
            .map_err(|e| e.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Op, Record};

    fn trace(times: &[f64]) -> Trace {
        Trace {
            name: String::new(),
            records: times
                .iter()
                .map(|&time| Record {
                    time,
                    tid: 1,
                    op: Op::Close { fd: 99 },
                })
                .collect(),
        }
    }

    #[test]
    fn merged_recordings_keep_time_and_order() {
        let order = merged(&[trace(&[1.0, 3.0, 2.0]), trace(&[2.5, 2.6])]);
        assert_eq!(order, [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2)]);
    }

    #[test]
    fn a_descriptor_is_sent_before_it_is_received() {
        let path = || "/dev/nvidiactl".to_owned();
        let mut sender = trace(&[1.0, 3.0, 2.0]);
        let mut receiver = trace(&[1.5, 2.1, 2.2]);
        sender.records[2].op = Op::Send {
            fd: 1,
            path: path(),
        };
        for record in &mut receiver.records[1..] {
            record.op = Op::Receive {
                fd: 2,
                path: path(),
            };
        }
        let order = merged(&[sender, receiver]);
        // A descriptor that nobody sends holds nothing up.
        assert_eq!(order, [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (1, 2)]);
    }

    #[test]
    fn processes_make_calls_and_report_them() {
        let traces = [trace(&[1.0]), trace(&[2.0, 3.0])];
        let mut seen = Vec::new();
        let nodes = [Nodes::Direct, Nodes::Direct];
        replay(&traces, &merged(&traces), &nodes, |t, i, outcome| {
            seen.push((t, i, outcome.skipped));
        })
        .expect("replay");
        assert_eq!(seen, [(0, 0, true), (1, 0, true), (1, 1, true)]);
    }
}
