// SPDX-License-Identifier: GPL-2.0
//! FSP, the processor that boots the others on Hopper: messages of one MCTP packet through a
//! window of 1 KiB (hopper/gh100/dev_fsp_pri.h, kern_fsp_gh100.c, fsp_mctp_format.h,
//! fsp_nvdm_format.h).
//!
//! The driver writes a packet into the window, then its ends into the queue's registers. The only
//! request is the chain of trust (NVDM type COT), whose payload has the address of GSP's boot
//! arguments. The answer is a packet of NVDM type FSP_RESPONSE with the type that it answers and
//! an error code of 0.

use crate::abi::{Abi, Record};

/// Size of the window in bytes.
const WINDOW: usize = 1024;
/// `MCTP_HEADER_SOM` and `MCTP_HEADER_EOM`: the packet is a whole message.
const MCTP_SINGLE: u32 = 3 << 30;
/// `MCTP_MSG_HEADER_TYPE_VENDOR_PCI` with NVIDIA's vendor number; the NVDM type goes into bits
/// 31:24.
const MCTP_VENDOR: u32 = 0x7e | 0x10de << 8;
/// Bytes of both headers.
const HEADERS: usize = 8;
/// `NV_PFSP_EMEMC_AINCW` and `NV_PFSP_EMEMC_AINCR`: the address goes on after a write, after a
/// read.
const AINCW: u32 = 1 << 24;
const AINCR: u32 = 1 << 25;

/// The request of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FspRequest {
    /// Boot GSP with the arguments at this address of the machine's memory.
    Boot(u64),
    /// Another message, of this NVDM type: answered, nothing done.
    Other(u32),
}

/// The window and its two queues.
#[derive(Debug)]
pub struct Fsp {
    window: Vec<u8>,
    control: u32,
    /// Beginning and end of the message to FSP.
    queue: [u32; 2],
    /// Beginning and end of the message from FSP.
    messages: [u32; 2],
}

impl Default for Fsp {
    fn default() -> Self {
        Self {
            window: vec![0; WINDOW],
            control: 0,
            queue: [0; 2],
            messages: [0; 2],
        }
    }
}

impl Fsp {
    /// Reads `NV_PFSP_EMEMC`.
    pub fn control(&self) -> u32 {
        self.control
    }

    /// Writes `NV_PFSP_EMEMC`: block of 256 bytes in bits 15:8, offset in bits 7:2.
    pub fn set_control(&mut self, value: u32) {
        self.control = value;
    }

    fn place(&self) -> std::ops::Range<usize> {
        let at = (self.control & 0xfffc) as usize % WINDOW;
        at..at + 4
    }

    fn step(&mut self, flag: u32) {
        if self.control & flag != 0 {
            self.control = self.control & !0xffff | ((self.control & 0xfffc) + 4) & 0xffff;
        }
    }

    /// Reads `NV_PFSP_EMEMD`.
    pub fn read_data(&mut self) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.window[self.place()]);
        self.step(AINCR);
        u32::from_le_bytes(word)
    }

    /// Writes `NV_PFSP_EMEMD`.
    pub fn write_data(&mut self, value: u32) {
        let place = self.place();
        self.window[place].copy_from_slice(&value.to_le_bytes());
        self.step(AINCW);
    }

    /// Beginning and end of the message to FSP.
    pub fn queue(&self) -> [u32; 2] {
        self.queue
    }

    /// Sets the end of the message to FSP; the driver does it before the beginning.
    pub fn set_queue_tail(&mut self, value: u32) {
        self.queue[1] = value;
    }

    /// Beginning and end of the message from FSP.
    pub fn messages(&self) -> [u32; 2] {
        self.messages
    }

    /// Sets one of the two, as the driver does when it has read the message.
    pub fn set_message(&mut self, end: usize, value: u32) {
        self.messages[end] = value;
    }

    /// Sets the beginning of the message to FSP: the message is complete, and answered here.
    pub fn set_queue_head(&mut self, value: u32, abi: &Abi) -> FspRequest {
        let size = (self.queue[1].wrapping_sub(value).wrapping_add(4) as usize).min(WINDOW);
        let packet = self.window[..size].to_vec();
        self.queue = [0; 2];
        let kind = packet.get(7).copied().map_or(0, u32::from);
        self.answer(kind, abi);
        let payload = packet.get(HEADERS..).unwrap_or_default();
        if kind == abi.word("NVDM_TYPE_COT") {
            if let Ok(chain) = Record::of(abi, "NVDM_PAYLOAD_COT", payload) {
                return FspRequest::Boot(chain.get("gspBootArgsSysmemOffset"));
            }
        }
        FspRequest::Other(kind)
    }

    /// Puts an answer without an error into the window.
    fn answer(&mut self, kind: u32, abi: &Abi) {
        let header = MCTP_VENDOR | abi.word("NVDM_TYPE_FSP_RESPONSE") << 24;
        // Task, type that is answered, error code (NVDM_PAYLOAD_COMMAND_RESPONSE).
        let words = [MCTP_SINGLE, header, 0, kind, 0];
        for (word, place) in words.iter().zip(self.window.chunks_exact_mut(4)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.messages = [0, 4 * (words.len() as u32 - 1)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_goes_on_by_itself() {
        let mut fsp = Fsp::default();
        fsp.set_control(AINCW);
        (0..200).for_each(|word| fsp.write_data(word));
        fsp.set_control(AINCR | (64 * 4));
        assert_eq!((fsp.read_data(), fsp.read_data()), (64, 65));
        assert_eq!(fsp.control(), AINCR | (66 * 4));
    }

    #[test]
    fn chain_of_trust_names_the_arguments() {
        let abi = Abi::of("550").expect("has a table");
        let mut packet = vec![0; HEADERS + abi.size("NVDM_PAYLOAD_COT")];
        packet[7] = 0x14;
        let at = HEADERS + abi.offset("NVDM_PAYLOAD_COT", "gspBootArgsSysmemOffset");
        packet[at..at + 8].copy_from_slice(&0x1234_5000_u64.to_le_bytes());
        let mut fsp = Fsp::default();
        fsp.set_control(AINCW);
        for word in packet.chunks(4) {
            fsp.write_data(u32::from_le_bytes(word.try_into().expect("four bytes")));
        }
        fsp.set_queue_tail(packet.len() as u32 - 4);
        assert_eq!(fsp.set_queue_head(0, &abi), FspRequest::Boot(0x1234_5000));
        assert_eq!((fsp.queue(), fsp.messages()), ([0, 0], [0, 16]));
        fsp.set_control(AINCR);
        let answer: Vec<u32> = (0..5).map(|_| fsp.read_data()).collect();
        assert_eq!(answer, [0xc000_0000, 0x1510_de7e, 0, 0x14, 0]);
    }
}
