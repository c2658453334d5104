// SPDX-License-Identifier: GPL-2.0
//! How messages were answered: a figure of how much of the firmware is understood.

use std::{collections::BTreeMap, fmt};

/// The source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The emulator knows what the call means.
    Known,
    /// A real driver's answer was recorded.
    Recorded,
    /// The parameters went back as they came, with status 0.
    Echo,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Known => "known",
            Self::Recorded => "recorded",
            Self::Echo => "echo",
        })
    }
}

/// A question: a message, a control, or an allocation of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// A message of its own number.
    Rpc(u32),
    /// A control.
    Control(u32),
    /// An allocation.
    Class(u32),
}

/// Picks some of the questions.
type Pick = fn(Question) -> bool;

/// How often each question was answered, and from where.
#[derive(Debug, Default)]
pub struct Counts {
    answers: BTreeMap<(Question, Source), u64>,
}

impl Counts {
    /// Counts an answer.
    pub fn add(&mut self, question: Question, source: Source) {
        *self.answers.entry((question, source)).or_default() += 1;
    }

    /// Kinds of questions that are answered from this source, of those that `of` picks.
    pub fn kinds(&self, source: Source, of: Pick) -> usize {
        let mine = |(question, from): &&(Question, Source)| *from == source && of(*question);
        self.answers.keys().filter(mine).count()
    }

    /// The summary, in lines.
    pub fn lines(&self) -> Vec<String> {
        let groups: [(&str, Pick); 3] = [
            ("messages", |question| matches!(question, Question::Rpc(_))),
            ("controls", |question| {
                matches!(question, Question::Control(_))
            }),
            ("classes", |question| matches!(question, Question::Class(_))),
        ];
        let mut lines = Vec::new();
        for (name, of) in groups {
            let kinds = |source| self.kinds(source, of);
            let calls: u64 = self
                .answers
                .iter()
                .filter(|((q, _), _)| of(*q))
                .map(|(_, count)| count)
                .sum();
            lines.push(format!(
                "{name}: {} kinds known, {} recorded, {} by echo; {calls} calls",
                kinds(Source::Known),
                kinds(Source::Recorded),
                kinds(Source::Echo),
            ));
        }
        let echoes = self
            .answers
            .iter()
            .filter(|((_, source), _)| *source == Source::Echo);
        lines.extend(echoes.map(|((question, _), count)| match question {
            Question::Rpc(number) => format!("echo: message {number}, {count} times"),
            Question::Control(number) => format!("echo: control {number:#x}, {count} times"),
            Question::Class(number) => format!("echo: class {number:#x}, {count} times"),
        }));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_once() {
        let mut counts = Counts::default();
        counts.add(Question::Control(1), Source::Known);
        counts.add(Question::Control(1), Source::Known);
        counts.add(Question::Control(2), Source::Echo);
        counts.add(Question::Rpc(1), Source::Known);
        let lines = counts.lines();
        assert_eq!(
            lines[0],
            "messages: 1 kinds known, 0 recorded, 0 by echo; 1 calls"
        );
        assert_eq!(
            lines[1],
            "controls: 1 kinds known, 0 recorded, 1 by echo; 3 calls"
        );
        assert_eq!(lines[3], "echo: control 0x2, 1 times");
    }
}
