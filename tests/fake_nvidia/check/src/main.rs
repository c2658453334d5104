// SPDX-License-Identifier: GPL-2.0
//! `standin-check`: asks a driver in the test machine, the stand-in or NVIDIA's own, how it answers
//! calls of all kinds, right and wrong. It judges nothing: tests/driver/alike.py compares.

mod answers;
mod calls;

fn main() {
    // A group of questions that ends early says so in its place.
    std::panic::set_hook(Box::new(|_| ()));
    answers::tell();
}
