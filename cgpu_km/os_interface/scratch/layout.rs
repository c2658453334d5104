// SPDX-License-Identifier: GPL-2.0
//! How many slots a process has, and how many pages a slot has for what.

use kernel::page::PAGE_SIZE;

/// Calls that a process can have in flight through the scratch.
pub(super) const SLOTS: usize = 8;
/// Most bytes of one part.
pub(super) const PART_MAX: usize = 96 << 10;
/// Most parts of one call.
pub(super) const PARTS_MAX: usize = 16;
/// Pages of a slot, of which a bit each fits into a word: room for the outer struct, a parameter
/// struct of the largest size, the lists that it points to, and the pages between them; and for the
/// round and the cells, with a page that is never there at the end.
pub(super) const SLOT_PAGES: usize = CELLS_AT + CELLS * CELL_STRIDE;
/// Pages of a slot that calls of one page take by turns, every other one: more take memory and save
/// little.
pub(super) const ROUND_PAGES: usize = 32;
/// A bit for each of them.
pub(super) const ROUND: u64 = 0xAAAA_AAAA;
/// Cells of a slot.
pub(super) const CELLS: usize = 6;
/// Pages of a cell.
pub(super) const CELL_PAGES: usize = 3;
/// From one cell to the next, with a page between them.
pub(super) const CELL_STRIDE: usize = CELL_PAGES + 1;
/// The first page of the first cell.
pub(super) const CELLS_AT: usize = ROUND_PAGES + 1;
/// A bit for each page of all cells.
pub(super) const ALL_CELLS: u64 = 0x77_7777 << CELLS_AT;
/// The second part of a call begins at a multiple of this, if it is on the page of the first.
pub(super) const ALIGNMENT: usize = 64;
/// From one slot to the next, in pages: a slot has its entries in one page table, where the mapping
/// begins with one, and so faults at a time for all of them.
pub(super) const SLOT_STRIDE: usize = 64;
pub(super) const POOL_BYTES: usize = SLOTS * SLOT_STRIDE * PAGE_SIZE;
