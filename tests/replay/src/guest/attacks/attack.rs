// SPDX-License-Identifier: GPL-2.0
//! An attack: a call, the sign that it has worked, and what the real driver does.

use super::scene::Attacker;
use crate::guest::tools::Verdict;

/// The real driver's reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    /// It lets the attack through.
    Passes,
    /// It refuses.
    Refuses,
    /// The stand-in has nothing of the kind (graphics, tools, dma-buf, idling channels); only the
    /// refusal is shown.
    NotModelled,
}

/// How it is seen that an attack has worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// It was told so: what it got is the harm.
    Told,
    /// Something of the victim's is not as it was.
    Victim,
    /// Something that holds for the whole GPU was set.
    Gpu,
    /// The attacker has more of the GPU's time than it should.
    Share,
}

/// An attack by calls.
pub(super) struct Attack {
    /// Its aim.
    pub(super) name: &'static str,
    /// Function of the driver, `file:function`.
    pub(super) function: &'static str,
    pub(super) driver: Driver,
    pub(super) sign: Sign,
    pub(super) run: fn(&Attacker) -> Verdict,
}

/// An attack on the module itself, that has no equal on the driver's nodes or shows it in passing.
pub(super) struct Own {
    pub(super) name: &'static str,
    /// The driver's function for what is attacked in the module, or `-`.
    pub(super) function: &'static str,
    /// Says how it was refused, or what went wrong.
    pub(super) run: fn() -> Result<String, String>,
}

pub(super) const fn attack(
    name: &'static str,
    function: &'static str,
    driver: Driver,
    sign: Sign,
    run: fn(&Attacker) -> Verdict,
) -> Attack {
    Attack {
        name,
        function,
        driver,
        sign,
        run,
    }
}

/// Declares the attacks of a file: `"name": "file:function", driver, sign, call;`.
macro_rules! attacks {
    ($($name:literal: $function:literal, $driver:ident, $sign:ident, $run:expr;)*) => {
        pub(super) const ATTACKS: &[super::attack::Attack] = &[$(super::attack::attack(
            $name,
            $function,
            super::attack::Driver::$driver,
            super::attack::Sign::$sign,
            $run,
        )),*];
    };
}
pub(super) use attacks;
