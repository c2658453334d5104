// SPDX-License-Identifier: GPL-2.0
//! GSP, the processor whose firmware does for the driver what the driver does not do itself:
//! messages come in a queue, and answers go back in another.

pub mod answers;
pub mod controls;
pub mod counts;
pub mod knowledge;
pub mod objects;
pub mod queues;
pub mod recordings;
pub mod rpc;

use crate::{
    abi::{Abi, Record},
    engines::Engine,
    log::Log,
    names::ChannelId,
    units::Units,
};
use counts::Counts;
use knowledge::Knowledge;
use objects::Objects;
use queues::{Message, Queues};
use rpc::Handled;
use std::{thread, time::Duration};

/// The number of no channel (`INVALID_CHID`).
const NO_CHANNEL: u32 = u32::MAX;

/// A message whose end is in further ones (CONTINUATION_RECORD).
#[derive(Debug)]
struct Partial {
    first: Message,
    /// Bytes that all its parts have, from the first one's header on.
    wanted: usize,
}

/// GSP: off, or with queues.
#[derive(Debug)]
pub struct Gsp {
    queues: Option<Queues>,
    partial: Option<Partial>,
    knowledge: Knowledge,
    /// How much later messages are answered.
    delay: Duration,
    /// It answers nothing any more.
    mute: bool,
}

impl Gsp {
    /// GSP after power on, for a driver of this release.
    pub fn new(abi: &Abi) -> Self {
        Self {
            queues: None,
            partial: None,
            knowledge: Knowledge::new(abi),
            delay: Duration::ZERO,
            mute: false,
        }
    }

    /// Reads the recordings, which takes a second, before anyone waits for it.
    pub fn prepare(&mut self) {
        self.knowledge.recordings();
    }

    /// How messages were answered.
    pub fn counts(&self) -> &Counts {
        &self.knowledge.counts
    }

    /// Boots with the arguments at this address, and says that it has (GSP_INIT_DONE).
    pub fn boot(&mut self, units: &mut Units, arguments: u64) {
        self.reset(units);
        match Queues::boot(&units.facts.abi, &mut units.memory, arguments) {
            Ok(queues) => self.queues = Some(queues),
            Err(no) => return units.log.say("gsp", format_args!("does not boot: {no:?}")),
        }
        units.log.say("gsp", format_args!("boots"));
        self.doorbell(units);
        self.event(units, "GSP_INIT_DONE", Vec::new());
    }

    /// Stops, and forgets everything.
    pub fn reset(&mut self, units: &mut Units) {
        self.queues = None;
        self.partial = None;
        self.knowledge.objects = Objects::default();
        units.host.reset();
    }

    /// Whether it runs.
    pub fn is_up(&self) -> bool {
        self.queues.is_some()
    }

    /// Takes all messages that are in the queue.
    pub fn doorbell(&mut self, units: &mut Units) {
        if self.mute {
            return;
        }
        thread::sleep(self.delay);
        while let Some(queues) = &mut self.queues {
            match queues.receive(&units.facts.abi, &mut units.memory) {
                Ok(Some(message)) => self.take(units, message),
                Ok(None) => return,
                Err(no) => {
                    units
                        .log
                        .say("gsp", format_args!("the queues are gone: {no:?}"));
                    return self.reset(units);
                }
            }
        }
    }

    /// Puts the parts of a long message together, and answers what is complete.
    fn take(&mut self, units: &mut Units, message: Message) {
        let continues = units.facts.abi.rpc("CONTINUATION_RECORD");
        if message.function == continues {
            let Some(partial) = &mut self.partial else {
                return;
            };
            let header = self.queues.as_ref().map_or(0, Queues::header);
            let length = (message.length as usize).saturating_sub(header);
            partial.first.body.extend(message.body.iter().take(length));
            if partial.first.body.len() + header < partial.wanted {
                return;
            }
            if let Some(Partial { first, .. }) = self.partial.take() {
                self.answer(units, first);
            }
            return;
        }
        let header = self.queues.as_ref().map_or(0, Queues::header);
        match rpc::whole_length(&units.facts.abi, &message) {
            Some(body) if body + header > message.length as usize => {
                let mut first = message;
                first.body.truncate(first.length as usize - header);
                self.partial = Some(Partial {
                    first,
                    wanted: body + header,
                });
            }
            _ => self.answer(units, message),
        }
    }

    /// Answers a message. After the last one, nothing of the driver's memory is known any more: the
    /// driver gives it back to the kernel, and still rings before it boots the firmware again.
    fn answer(&mut self, units: &mut Units, mut message: Message) {
        match rpc::handle(&mut self.knowledge, units, &mut message) {
            Handled::Answer(result) => self.reply(units, message, result),
            Handled::Silent => {}
            Handled::Last(result) => {
                self.reply(units, message, result);
                self.reset(units);
            }
        }
    }

    /// Sends an answer, in parts if it is long.
    fn reply(&mut self, units: &mut Units, mut message: Message, result: u32) {
        message.result = result;
        let Some(queues) = &self.queues else { return };
        let (header, longest) = (queues.header(), queues.longest());
        if message.body.len() + header <= longest {
            return self.send(units, &message);
        }
        let rest = message.body.split_off(longest - header);
        message.length = longest as u32;
        let (sequence, function) = (message.sequence, units.facts.abi.rpc("CONTINUATION_RECORD"));
        self.send(units, &message);
        for part in rest.chunks(longest - header) {
            let length = (part.len() + header) as u32;
            let part = Message {
                function,
                result,
                sequence,
                length,
                body: part.to_vec(),
            };
            self.send(units, &part);
        }
    }

    /// The next allocation of this class is refused.
    pub fn refuse(&mut self, class: u32, status: u32) {
        self.knowledge.refuse = Some((class, status));
    }

    /// Messages are answered that much later.
    pub fn slow(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// Messages are not answered any more.
    pub fn mute(&mut self) {
        self.mute = true;
    }

    /// An error for the driver's log (OS_ERROR_LOG), of a channel or of none.
    pub fn error_log(
        &mut self,
        units: &mut Units,
        number: u32,
        channel: Option<ChannelId>,
        text: &str,
    ) {
        let name = "rpc_os_error_log_v17_00";
        let mut body = vec![0; units.facts.abi.size(name)];
        let mut record = Record::of(&units.facts.abi, name, &mut body).expect("has its size");
        record.set("exceptType", u64::from(number));
        let (runlist, channel) = channel.map_or((0, NO_CHANNEL), |id| (id.runlist, id.number));
        record.set("runlistId", u64::from(runlist));
        record.set("chid", u64::from(channel));
        record.set_bytes("errString", &[], text.as_bytes());
        self.event(units, "OS_ERROR_LOG", body);
    }

    /// A channel was stopped with an error (RC_TRIGGERED).
    pub fn channel_error(&mut self, units: &mut Units, channel: ChannelId, number: u32) {
        let abi = &units.facts.abi;
        let runs = |engine: &&Engine| engine.runlist == channel.runlist;
        let engine = units
            .facts
            .engines
            .iter()
            .find(runs)
            .map_or(0, |e| e.rm_type(abi));
        let name = "rpc_rc_triggered_v17_02";
        let mut body = vec![0; abi.size(name)];
        let mut record = Record::of(abi, name, &mut body).expect("has its size");
        record.set("nv2080EngineType", u64::from(engine));
        record.set("chid", u64::from(channel.number));
        record.set("exceptType", u64::from(number));
        self.event(units, "RC_TRIGGERED", body);
    }

    /// Sends an event: a message that answers none.
    pub fn event(&mut self, units: &mut Units, name: &str, body: Vec<u8>) {
        let Some(queues) = &self.queues else { return };
        let length = (queues.header() + body.len()) as u32;
        let function = units.facts.abi.rpc(name);
        self.send(
            units,
            &Message {
                function,
                length,
                body,
                ..Message::default()
            },
        );
    }

    fn send(&mut self, units: &mut Units, message: &Message) {
        let Some(queues) = &mut self.queues else {
            return;
        };
        let sent = queues.send(&units.facts.abi, &mut units.memory, message);
        if let Err(no) = sent {
            units.log.say("gsp", format_args!("cannot send: {no:?}"));
            self.reset(units);
        }
    }

    /// Writes how messages were answered.
    pub fn summary(&self, log: &mut Log) {
        for line in self.knowledge.counts.lines() {
            log.say("gsp", format_args!("{line}"));
        }
    }
}
