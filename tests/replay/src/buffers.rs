// SPDX-License-Identifier: GPL-2.0
//! The user memory of one replayed call: argument, nested parameters, and what those point to, each
//! in a buffer of its own as real programs have them.

use crate::{
    bytes::{put_u32, put_u64, u32_at, u64_at},
    decode::Decoded,
    layout::{self, Effect, Kind, Pointer},
    record::{Nested, NestedKind},
    space::ReplaySpace,
};

/// Offset of the nested parameters' pointer in RM_CONTROL and RM_ALLOC.
const PARAMS_AT: usize = 16;
/// Offset of `pRightsRequested` in the long form of RM_ALLOC.
const RIGHTS_AT: usize = 24;
/// Most that an embedded pointer gets: counts in a recording of a hostile program may be anything.
const EMBEDDED_MAX: usize = 1 << 20;

/// Bytes at an address that is a multiple of eight.
#[derive(Debug, Default)]
struct Memory {
    words: Vec<u64>,
    len: usize,
}

impl Memory {
    fn new(bytes: &[u8]) -> Self {
        let mut memory = Self {
            words: vec![0; bytes.len().div_ceil(8)],
            len: bytes.len(),
        };
        memory.bytes_mut().copy_from_slice(bytes);
        memory
    }

    fn zeroed(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(8).max(1)],
            len,
        }
    }

    fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    fn bytes(&self) -> &[u8] {
        use zerocopy::IntoBytes;
        &self.words.as_bytes()[..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        use zerocopy::IntoBytes;
        &mut self.words.as_mut_bytes()[..self.len]
    }
}

/// The buffers of one call.
#[derive(Debug)]
pub struct Buffers {
    argument: Memory,
    sent: Vec<u8>,
    nested: Option<Memory>,
    nested_sent: Vec<u8>,
    /// The targets of pointers, kept alive until the call is over.
    #[allow(
        dead_code,
        reason = "the kernel reads and writes it through its address"
    )]
    embedded: Vec<Memory>,
}

impl Buffers {
    /// Lays out a call's memory with everything translated.
    pub fn new(d: &Decoded<'_>, space: &ReplaySpace) -> Self {
        let mut argument = Memory::new(d.input());
        if d.uvm {
            // UUIDs.
            let size = d.size();
            space.translate(0, &mut argument.bytes_mut()[..size]);
        }
        for field in d.call.fields {
            space.translate_field(d.input(), argument.bytes_mut(), *field);
        }
        // A handle that the caller chose stays; 0 lets the driver choose.
        let mut embedded = Vec::new();
        for field in d.call.fields {
            if let (Kind::List(count_at), true) = (field.kind, u64_at(d.input(), field.at) != 0) {
                let count = usize::try_from(u32_at(d.input(), count_at)).unwrap_or(0);
                let list = Memory::zeroed(count.saturating_mul(4).min(EMBEDDED_MAX));
                put_u64(argument.bytes_mut(), field.at, list.address());
                embedded.push(list);
            }
        }
        let mut parameters = None;
        let client = u32_at(d.input(), 0);
        if let Some(nested @ Nested { kind, code, bytes }) = &d.io.nested {
            if *kind == NestedKind::Alloc && d.size() >= 48 && u64_at(d.input(), RIGHTS_AT) != 0 {
                embedded.push(Memory::zeroed(16));
                let rights = embedded.last().map_or(0, Memory::address);
                put_u64(argument.bytes_mut(), RIGHTS_AT, rights);
            }
            if let Some(bytes) = bytes {
                let size = d.nested_size(nested);
                let mut params = Memory::zeroed(bytes.input.len().max(d.nested_reach(nested)));
                params.bytes_mut()[..bytes.input.len()].copy_from_slice(&bytes.input);
                space.translate(client, &mut params.bytes_mut()[..size]);
                if *kind == NestedKind::Control {
                    space.translate_pids(layout::pids(*code), params.bytes_mut());
                    for pointer in layout::pointers(*code) {
                        let target = target(*code, *pointer, &bytes.input, client, space);
                        if let Some(target) = target {
                            put_u64(params.bytes_mut(), pointer.at, target.address());
                            embedded.push(target);
                        }
                    }
                }
                put_u64(argument.bytes_mut(), PARAMS_AT, params.address());
                parameters = Some(params);
            } else if u64_at(d.input(), PARAMS_AT) != 0 {
                // A pointer whose target was not recorded (1 MiB and more): zeros of that size.
                let size = u32_at(d.input(), PARAMS_AT + 8);
                let size = usize::try_from(size).unwrap_or(0).min(64 << 20);
                embedded.push(Memory::zeroed(size));
                let params = embedded.last().map_or(0, Memory::address);
                put_u64(argument.bytes_mut(), PARAMS_AT, params);
            }
        }
        Self {
            sent: argument.bytes().to_vec(),
            argument,
            nested_sent: parameters
                .as_ref()
                .map_or(Vec::new(), |n| n.bytes().to_vec()),
            nested: parameters,
            embedded,
        }
    }

    /// The argument, for the call.
    pub fn argument(&mut self) -> &mut [u8] {
        self.argument.bytes_mut()
    }

    /// The argument as it was sent.
    pub fn sent(&self) -> &[u8] {
        &self.sent
    }

    /// The argument as it came back.
    pub fn seen(&self) -> &[u8] {
        self.argument.bytes()
    }

    /// The nested parameters as they were sent.
    pub fn nested_sent(&self) -> Option<&[u8]> {
        self.nested.as_ref().map(|_| self.nested_sent.as_slice())
    }

    /// The nested parameters as they came back.
    pub fn nested_seen(&self) -> Option<&[u8]> {
        self.nested.as_ref().map(Memory::bytes)
    }

    /// The argument that should have come back: as recorded, translated, our pointers.
    pub fn expected(&self, d: &Decoded<'_>, space: &ReplaySpace) -> Vec<u8> {
        let Some(recorded) = d.io.argument.as_ref().map(|a| a.output.as_slice()) else {
            return Vec::new();
        };
        let mut bytes = recorded.to_vec();
        let size = d.size();
        if d.uvm {
            space.translate(0, &mut bytes[..size]);
        }
        for field in d.call.fields {
            space.translate_field(recorded, &mut bytes, *field);
            if matches!(
                field.kind,
                Kind::HostMemory(_) | Kind::Mapped | Kind::List(_)
            ) {
                put_u64(&mut bytes, field.at, u64_at(&self.sent, field.at));
            }
        }
        if let Effect::Create(at) = d.call.effect {
            let made = u32_at(recorded, at);
            let client = u32_at(recorded, 0);
            put_u32(&mut bytes, at, space.object((client, made)));
            if client == 0 {
                put_u32(&mut bytes, at, space.client(made));
            }
        }
        if let Effect::Free(at) = d.call.effect {
            // A freed object is unknown by now; the handles come back as they were sent.
            bytes[..at + 4].copy_from_slice(&self.sent[..at + 4]);
        }
        if d.io.nested.is_some() {
            put_u64(&mut bytes, PARAMS_AT, u64_at(&self.sent, PARAMS_AT));
            if size >= 48 {
                put_u64(&mut bytes, RIGHTS_AT, u64_at(&self.sent, RIGHTS_AT));
            }
        }
        bytes
    }

    /// The nested parameters that should have come back.
    pub fn nested_expected(
        &self,
        d: &Decoded<'_>,
        nested: &Nested,
        space: &ReplaySpace,
    ) -> Vec<u8> {
        let Some(recorded) = &nested.bytes else {
            return Vec::new();
        };
        let mut bytes = recorded.output.clone();
        let size = d.nested_size(nested);
        space.translate(u32_at(d.input(), 0), &mut bytes[..size]);
        if nested.kind == NestedKind::Control {
            for pointer in layout::pointers(nested.code) {
                let sent = u64_at(&self.nested_sent, pointer.at);
                put_u64(&mut bytes, pointer.at, sent);
            }
        }
        bytes
    }
}

/// The target of a pointer inside a control's parameters. Its content was not recorded: zeros,
/// except for the list of channels, which CUDA asks for right after it made one.
fn target(
    control: u32,
    pointer: Pointer,
    params: &[u8],
    client: u32,
    space: &ReplaySpace,
) -> Option<Memory> {
    if u64_at(params, pointer.at) == 0 || pointer.at + 8 > params.len() {
        return None;
    }
    let count = usize::try_from(u32_at(params, pointer.count)).unwrap_or(0);
    let len = count.saturating_mul(pointer.element).min(EMBEDDED_MAX);
    let mut memory = Memory::zeroed(len);
    if control == layout::CHANNEL_LIST && pointer.at == 8 {
        for (i, handle) in space.last_channels(client, count).into_iter().enumerate() {
            put_u32(memory.bytes_mut(), 4 * i, handle);
        }
    }
    Some(memory)
}
