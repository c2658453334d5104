// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Words for the log that are said once: what is tried again and again mostly fails for the same
//! reason.

/// The last words about one thing; none while nothing is wrong with it.
#[derive(Debug, Default)]
pub struct Once(Option<String>);

impl Once {
    /// Says what is wrong, a sentence, unless it was said last. `None`: nothing is wrong any more.
    pub fn say(&mut self, what: Option<String>) {
        if self.is_news(what) {
            eprintln!("cgpu-dra: {}", self.0.as_deref().unwrap_or_default());
        }
    }

    /// Whether there is something to say that was not said last.
    fn is_news(&mut self, what: Option<String>) -> bool {
        let news = what.is_some() && self.0 != what;
        self.0 = what;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once() {
        let mut last = Once::default();
        let mut is_news = |what: Option<&str>| last.is_news(what.map(str::to_owned));
        assert!(!is_news(None));
        assert!(is_news(Some("it is away")));
        assert!(!is_news(Some("it is away")));
        assert!(is_news(Some("it is full")));
        assert!(!is_news(None));
        assert!(is_news(Some("it is full")));
    }
}
