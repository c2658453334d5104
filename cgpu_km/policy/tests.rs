// SPDX-License-Identifier: GPL-2.0
//! Tests of the books as a whole.

pub(super) mod steps;
