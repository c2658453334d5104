// SPDX-License-Identifier: GPL-2.0
//! The two message queues between driver and GSP, from GSP's side (message_queue_cpu.c, msgq.c).
//!
//! Both lie in one shared memory of pages that a table lists. A queue has a header of its
//! writer's, with the write pointer, and one of its reader's with the read pointer. The driver
//! asks to swap the readers' headers: each side's read pointer is behind that side's own writer's
//! header. An element is one page, and a message up to 16 of them; a checksum over the message is
//! zero when it is right.

use crate::{
    abi::{Abi, Record},
    memory::Memory,
    place::{NoMemory, Place},
};

/// Size of a page, and of an element.
const PAGE: usize = 4096;
/// The largest number of elements of a message (`GSP_MSG_QUEUE_ELEMENT_SIZE_MAX`).
const MOST_ELEMENTS: u32 = 16;

/// Why there are no queues.
#[derive(Debug)]
pub enum NoQueues {
    /// The driver points to something that is not memory.
    Memory(NoMemory),
    /// The boot arguments have no entry of this name.
    Argument(&'static str),
    /// The driver's header of its queue makes no sense: the value of its first wrong field.
    Header(u32),
}

impl From<NoMemory> for NoQueues {
    fn from(no: NoMemory) -> Self {
        Self::Memory(no)
    }
}

/// A message, its header taken apart (`rpc_message_header_v`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Number of the message.
    pub function: u32,
    /// Result of an answer: a status.
    pub result: u32,
    /// The number by which the driver knows the answer.
    pub sequence: u32,
    /// Length as the header says it, from the header's beginning.
    pub length: u32,
    /// All that follows the header in the message's elements.
    pub body: Vec<u8>,
}

/// Offsets in an element, from the release's headers.
#[derive(Debug)]
struct Layout {
    checksum: usize,
    sequence: usize,
    count: usize,
    rpc: usize,
    rpc_size: usize,
}

/// The queues while GSP runs.
#[derive(Debug)]
pub struct Queues {
    /// Addresses of the shared memory's pages.
    pages: Vec<u64>,
    /// Offsets of the driver's queue in the shared memory, and of GSP's.
    command: usize,
    status: usize,
    /// From a queue's beginning to its elements, and to the other side's read pointer.
    elements: usize,
    reader: usize,
    /// Offset of the write pointer in the header.
    writer: usize,
    /// Elements of a queue.
    count: u32,
    read: u32,
    written: u32,
    sent: u32,
    layout: Layout,
}

/// The checksum of a message: zero when its field is right.
pub fn checksum(bytes: &[u8]) -> u32 {
    let folded = bytes.chunks(8).fold(0, |sum, chunk| {
        let mut wide = [0; 8];
        wide[..chunk.len()].copy_from_slice(chunk);
        sum ^ u64::from_le_bytes(wide)
    });
    (folded >> 32) as u32 ^ folded as u32
}

/// Finds the arguments for RM among those of the operating system of GSP's (libos_init_args.h).
fn rm_arguments(abi: &Abi, memory: &Memory, list: Place) -> Result<Place, NoQueues> {
    let name = "LibosMemoryRegionInitArgument";
    let size = abi.size(name);
    for index in 0..16 {
        let bytes = memory.bytes(list.plus(index * size as u64), size)?;
        let entry = Record::of(abi, name, bytes).expect("has the struct's size");
        let id = entry.get("id8").to_be_bytes();
        match id.iter().position(|byte| *byte != 0) {
            Some(start) if &id[start..] == b"RMARGS" => {
                return Ok(Place::system(entry.get("pa")));
            }
            Some(_) => {}
            None => break,
        }
    }
    Err(NoQueues::Argument("RMARGS"))
}

impl Queues {
    /// Follows the boot arguments to the queues and makes GSP's own ready.
    pub fn boot(abi: &Abi, memory: &mut Memory, arguments: u64) -> Result<Self, NoQueues> {
        let field = abi.offset("GSP_FMC_BOOT_PARAMS", "gspRmParams.bootArgsOffset");
        let list = memory.read64(Place::system(arguments + field as u64))?;
        let rm = rm_arguments(abi, memory, Place::system(list))?;
        let name = "GSP_ARGUMENTS_CACHED";
        let bytes = memory.bytes(rm, abi.size(name))?;
        let cached = Record::of(abi, name, bytes).expect("has the struct's size");
        let said = |field: &str| cached.get(&format!("messageQueueInitArguments.{field}"));
        let table = Place::system(said("sharedMemPhysAddr"));
        let pages = (0..said("pageTableEntryCount"))
            .map(|index| memory.read64(table.plus(index * 8)))
            .collect::<Result<Vec<u64>, NoMemory>>()?;
        let element = "GSP_MSG_QUEUE_ELEMENT";
        let mut queues = Self {
            pages,
            command: said("cmdQueueOffset") as usize,
            status: said("statQueueOffset") as usize,
            elements: 0,
            reader: 0,
            writer: abi.offset("msgqTxHeader", "writePtr"),
            count: 0,
            read: 0,
            written: 0,
            sent: 0,
            layout: Layout {
                checksum: abi.offset(element, "checkSum"),
                sequence: abi.offset(element, "seqNum"),
                count: abi.offset(element, "elemCount"),
                rpc: abi.offset(element, "rpc"),
                rpc_size: abi.size("rpc_message_header_v"),
            },
        };
        queues.take_over(abi, memory)?;
        Ok(queues)
    }

    /// Reads the header of the driver's queue, and writes the same one for GSP's.
    fn take_over(&mut self, abi: &Abi, memory: &mut Memory) -> Result<(), NoQueues> {
        let mut bytes = vec![0; abi.size("msgqTxHeader")];
        self.read_shared(memory, self.command, &mut bytes)?;
        let mut header = Record::of(abi, "msgqTxHeader", &mut bytes).expect("has its size");
        if header.word("msgSize") as usize != PAGE {
            return Err(NoQueues::Header(header.word("msgSize")));
        }
        self.count = header.word("msgCount");
        if self.count == 0 {
            return Err(NoQueues::Header(0));
        }
        self.elements = header.word("entryOff") as usize;
        self.reader = header.word("rxHdrOff") as usize;
        header.set("writePtr", 0);
        self.write_shared(memory, self.status, &bytes)?;
        self.write_shared(memory, self.status + self.reader, &[0; 4])?;
        Ok(())
    }

    /// Calls `each` with the place of every part of a range of the shared memory that is in one
    /// page.
    fn parts(
        &self,
        offset: usize,
        length: usize,
        mut each: impl FnMut(Place, std::ops::Range<usize>) -> Result<(), NoMemory>,
    ) -> Result<(), NoMemory> {
        let mut done = 0;
        while done < length {
            let at = offset + done;
            let inside = at % PAGE;
            let part = (length - done).min(PAGE - inside);
            let no_page = NoMemory(Place::system(at as u64));
            let page = *self.pages.get(at / PAGE).ok_or(no_page)?;
            each(Place::system(page + inside as u64), done..done + part)?;
            done += part;
        }
        Ok(())
    }

    fn read_shared(
        &self,
        memory: &Memory,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), NoMemory> {
        self.parts(offset, bytes.len(), |place, part| {
            memory.read(place, &mut bytes[part])
        })
    }

    fn write_shared(
        &self,
        memory: &mut Memory,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), NoMemory> {
        self.parts(offset, bytes.len(), |place, part| {
            memory.write(place, &bytes[part])
        })
    }

    fn element(&self, queue: usize, index: u32) -> usize {
        queue + self.elements + (index % self.count) as usize * PAGE
    }

    /// The driver's next message. `None`: there is none. An error: the queues are gone, as the
    /// driver frees them when it unloads.
    pub fn receive(&mut self, abi: &Abi, memory: &mut Memory) -> Result<Option<Message>, NoQueues> {
        let mut write = [0; 4];
        self.read_shared(memory, self.command + self.writer, &mut write)?;
        if u32::from_le_bytes(write) == self.read {
            return Ok(None);
        }
        let mut bytes = vec![0; PAGE];
        self.read_shared(memory, self.element(self.command, self.read), &mut bytes)?;
        let count = word(&bytes, self.layout.count);
        if !(1..=MOST_ELEMENTS).contains(&count) {
            return Err(NoQueues::Header(count));
        }
        bytes.resize(count as usize * PAGE, 0);
        for index in 1..count {
            let at = self.element(self.command, self.read + index);
            let start = index as usize * PAGE;
            self.read_shared(memory, at, &mut bytes[start..start + PAGE])?;
        }
        self.read = (self.read + count) % self.count;
        self.write_shared(memory, self.status + self.reader, &self.read.to_le_bytes())?;
        let rpc = &bytes[self.layout.rpc..];
        let header = Record::of(abi, "rpc_message_header_v", rpc).expect("a page has room");
        let signature = abi.word("NV_VGPU_MSG_SIGNATURE_VALID");
        if header.word("signature") != signature {
            return Err(NoQueues::Header(header.word("signature")));
        }
        Ok(Some(Message {
            function: header.word("function"),
            result: header.word("rpc_result"),
            sequence: header.word("sequence"),
            length: header.word("length"),
            body: rpc[self.layout.rpc_size..].to_vec(),
        }))
    }

    /// The longest message, from the message's header on.
    pub fn longest(&self) -> usize {
        MOST_ELEMENTS as usize * PAGE - self.layout.rpc
    }

    /// Size of a message's header.
    pub fn header(&self) -> usize {
        self.layout.rpc_size
    }

    /// Sends a message to the driver.
    pub fn send(
        &mut self,
        abi: &Abi,
        memory: &mut Memory,
        message: &Message,
    ) -> Result<(), NoQueues> {
        let body_at = self.layout.rpc + self.layout.rpc_size;
        let length = body_at + message.body.len();
        let count = length.div_ceil(PAGE);
        let mut bytes = vec![0; count * PAGE];
        bytes[body_at..length].copy_from_slice(&message.body);
        let name = "rpc_message_header_v";
        let mut header = Record::of(abi, name, &mut bytes[self.layout.rpc..]).expect("has room");
        header.set(
            "header_version",
            abi.number("NV_VGPU_MSG_HEADER_VERSION_MAJOR_TOT") << 24,
        );
        header.set("signature", abi.number("NV_VGPU_MSG_SIGNATURE_VALID"));
        header.set("length", u64::from(message.length));
        header.set("function", u64::from(message.function));
        header.set("rpc_result", u64::from(message.result));
        header.set("rpc_result_private", u64::from(message.result));
        header.set("sequence", u64::from(message.sequence));
        put(&mut bytes, self.layout.sequence, self.sent);
        put(&mut bytes, self.layout.count, count as u32);
        let said = (self.layout.rpc + message.length as usize).min(bytes.len());
        let sum = checksum(&bytes[..said]);
        put(&mut bytes, self.layout.checksum, sum);
        for (index, element) in bytes.chunks(PAGE).enumerate() {
            let at = self.element(self.status, self.written + index as u32);
            self.write_shared(memory, at, element)?;
        }
        self.written = (self.written + count as u32) % self.count;
        self.sent = self.sent.wrapping_add(1);
        let pointer = self.written.to_le_bytes();
        self.write_shared(memory, self.status + self.writer, &pointer)?;
        Ok(())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_a_summed_message_is_zero() {
        let mut bytes = vec![7; 100];
        put(&mut bytes, 32, 0);
        let sum = checksum(&bytes);
        put(&mut bytes, 32, sum);
        assert_eq!(checksum(&bytes), 0);
    }

    #[test]
    fn arguments_without_queues_are_refused() {
        let abi = Abi::of("550").expect("has a table");
        let mut memory = Memory::new(1 << 20);
        let refused = Queues::boot(&abi, &mut memory, 0x1000);
        assert!(matches!(refused, Err(NoQueues::Memory(_))));
    }
}
