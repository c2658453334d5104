// SPDX-License-Identifier: GPL-2.0
//! The result of a call: compared with the recording, and remembered for later calls.

use crate::{
    buffers::Buffers,
    bytes::{fd_at, u32_at, u64_at},
    compare,
    decode::Decoded,
    layout::{self, Effect, Kind},
    play::{differs, Player},
    record::NestedKind,
    report::{Outcome, Refused, Told},
};

/// NV_ERR_NO_MEMORY: what an allocation over the limit gets.
const NO_MEMORY: u32 = 0x51;
/// NV2080_CTRL_CMD_GPU_RELEASE_COMPUTE_MODE_RESERVATION, which the module answers, and
/// NV_ERR_STATE_IN_USE, with which the driver refuses it.
const RELEASE_RESERVATION: u32 = 0x2080_0146;
const STATE_IN_USE: u32 = 0x63;

impl Player<'_> {
    /// Compares what came back, and learns from it.
    pub(crate) fn judge(
        &mut self,
        index: usize,
        d: &Decoded<'_>,
        buffers: &Buffers,
        seen: Result<i32, i32>,
    ) -> Outcome {
        let mut out = Outcome {
            charges: d.allocates() || matches!(d.call.effect, Effect::Free(_)),
            ..Outcome::default()
        };
        let call = d.title();
        let recorded = if d.io.ret < 0 {
            Err(d.io.errno)
        } else {
            Ok(d.io.ret)
        };
        if recorded != seen {
            let text = |r: &Result<i32, i32>| match r {
                Ok(v) => v.to_string(),
                Err(e) => format!("errno {e}"),
            };
            out.mismatches
                .push(differs(index, &call, "ret", text(&recorded), text(&seen)));
        }
        let wanted = d.status(d.output());
        let status = d.status(buffers.seen());
        let refused = d.allocates() && status == Some(NO_MEMORY) && seen.is_ok();
        if refused {
            out.refused = Some(Refused {
                trace: None,
                index,
                class: format!("{:#x}", d.class()),
                bytes: d.bytes_wanted(),
                status: format!("{NO_MEMORY:#x}"),
            });
        }
        let shared_mode = d.uvm
            && d.nr == layout::UVM_MM_INITIALIZE
            && !self.nodes.is_direct()
            && status == Some(layout::NOTHING_TO_DO);
        let control =
            d.io.nested
                .as_ref()
                .map(|nested| (nested.kind, nested.code));
        let reservation = control == Some((NestedKind::Control, RELEASE_RESERVATION))
            && (wanted, status) == (Some(STATE_IN_USE), Some(0));
        let excused = !self.nodes.is_direct() && (refused && wanted == Some(0) || reservation);
        if wanted != status && seen.is_ok() && !excused && !shared_mode {
            let text = |s: Option<u32>| s.map_or("none".to_owned(), |s| format!("{s:#x}"));
            out.mismatches
                .push(differs(index, &call, "status", text(wanted), text(status)));
        }
        let worked = |ok: bool, status: Option<u32>| ok && status.unwrap_or(0) == 0;
        match (
            worked(recorded.is_ok(), wanted),
            worked(seen.is_ok(), status),
        ) {
            (true, true) => self.learn(d, buffers, &mut out),
            (true, false) if !shared_mode => self.lose_effect(d),
            _ => {}
        }
        if seen.is_ok() {
            told(d, buffers, &mut out.told);
            if wanted == status {
                self.compare(index, d, buffers, &mut out);
            }
        }
        out
    }

    /// Takes over what a call that worked made.
    fn learn(&mut self, d: &Decoded<'_>, buffers: &Buffers, out: &mut Outcome) {
        let (input, output, seen) = (d.input(), d.output(), buffers.seen());
        let client = u32_at(input, 0);
        match d.call.effect {
            Effect::Create(at) => {
                let (made, real) = (u32_at(output, at), u32_at(seen, at));
                if d.nr == layout::NR_ALLOC && matches!(d.class(), 0 | 1 | 0x41) {
                    self.space.add_client(made, real);
                    self.space.add_object((made, made), real);
                    out.clients.push((made, real));
                } else {
                    self.space.add_object((client, made), real);
                    if d.nr == layout::NR_ALLOC && layout::is_channel(d.class()) {
                        self.space.add_channel((client, made));
                    }
                }
            }
            Effect::Free(at) => self.space.free((client, u32_at(input, at))),
            Effect::MapContext(at) => self.space.add_context(fd_at(input, at)),
            Effect::UvmMap | Effect::UvmFree => self.space.restore_range(u64_at(input, 0)),
            Effect::UvmUnmap | Effect::None => {}
        }
        for field in d.call.fields {
            let (old, new) = (u64_at(output, field.at), u64_at(seen, field.at));
            match field.kind {
                Kind::Linear if matches!(d.call.effect, Effect::MapContext(_)) => {
                    self.space.add_linear(old, new);
                }
                Kind::Group if u64_at(input, field.at) != old => self.space.add_group(old, new),
                _ => {}
            }
        }
        if let (Some(nested), Some(real)) = (&d.io.nested, buffers.nested_seen()) {
            if nested.kind == NestedKind::Control && nested.code == layout::GID_INFO {
                let (at, len) = layout::GID_BYTES;
                let part = |b: &[u8]| b.get(at..at + len).and_then(|b| b.try_into().ok());
                let old = nested.bytes.as_ref().and_then(|b| part(&b.output));
                if let (Some(old), Some(new)) = (old, part(real)) {
                    self.space.add_uuid(old, new);
                }
            }
        }
    }

    /// Compares the outputs, whole without an instance; nobody may write behind the parameters.
    fn compare(&mut self, index: usize, d: &Decoded<'_>, buffers: &Buffers, out: &mut Outcome) {
        let call = d.title();
        let mut check = |what: &str, expected: &[u8], seen: &[u8], volatile: &[_]| {
            let found = compare::buffers(index, &call, what, expected, seen, volatile);
            out.mismatches.extend(found);
        };
        let size = d.size();
        let (sent, seen) = (buffers.sent(), buffers.seen());
        check("tail", &sent[size..], &seen[size..], &[]);
        if self.nodes.is_direct() {
            let expected = buffers.expected(d, &self.space);
            let nr = if d.uvm { u32::MAX } else { d.nr };
            let volatile = compare::volatile_argument(nr);
            check("out", &expected[..size], &seen[..size], volatile);
        }
        let (Some(nested), Some(seen), Some(sent)) =
            (&d.io.nested, buffers.nested_seen(), buffers.nested_sent())
        else {
            return;
        };
        let (size, reach) = (d.nested_size(nested), d.nested_reach(nested));
        check("tail", &sent[reach..], &seen[reach..], &[]);
        if self.nodes.is_direct() {
            let mut expected = buffers.nested_expected(d, nested, &self.space);
            match nested.kind {
                NestedKind::Alloc => compare::excuse_pieces(nested.code, &mut expected, seen),
                NestedKind::Control => {
                    compare::excuse_use(nested.code, &mut expected, seen, self.company);
                }
            }
            if nested.kind == NestedKind::Control && nested.code == layout::FB_GET_INFO_V2 {
                let by = compare::Unseen {
                    others: &mut self.held_by_others,
                    managed: self.space.managed(),
                    company: self.company,
                };
                compare::excuse_free(&mut expected, seen, by);
            }
            let volatile = match nested.kind {
                NestedKind::Alloc => compare::volatile_class(nested.code),
                NestedKind::Control => compare::volatile_control(nested.code),
            };
            check("nout", &expected[..size], &seen[..size], volatile);
        }
    }
}

/// Reads the answer to a question about memory.
fn told(d: &Decoded<'_>, buffers: &Buffers, told: &mut Told) {
    let (Some(nested), Some(answer)) = (&d.io.nested, buffers.nested_seen()) else {
        return;
    };
    if nested.kind != NestedKind::Control || nested.code != layout::FB_GET_INFO_V2 {
        return;
    }
    let pairs = usize::try_from(u32_at(answer, 0)).unwrap_or(0).min(256);
    for i in 0..pairs {
        let at = 4 + 8 * i;
        let bytes = Some(u64::from(u32_at(answer, at + 4)) << 10);
        match u32_at(answer, at) {
            0x08 => told.total_bytes = bytes,
            0x09 => told.heap_bytes = bytes,
            0x16 => told.free_bytes = bytes,
            _ => {}
        }
    }
}
