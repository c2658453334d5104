// SPDX-License-Identifier: GPL-2.0
//! Calls by which NVIDIA's driver would end the host's kernel.

use super::*;
use crate::nvidia::capability::{Capabilities, GRAPHICS, PROFILING, VIDEO};

/// A tenant with all capabilities that work on the GPU.
fn with_all() -> Program {
    let mut program = Program::with_subdevice(GIB);
    let all = Capabilities::DEFAULT.or(GRAPHICS).or(VIDEO).or(PROFILING);
    program.accounting.set_capabilities(GPU, all).unwrap();
    program.driver = Box::new(|_| 0);
    program
}

#[test]
fn size_of_an_absent_context_is_refused() {
    // NV2080_CTRL_CMD_FLCN_GET_CTX_BUFFER_SIZE.
    const COMMAND: u32 = 0x2080_3125;
    for branch in Branch::ALL {
        let mut program = with_all();
        program.branch = branch;
        let told = control(&mut program, CLIENT, COMMAND, &[0; 16]);
        assert_eq!(told, NvStatus::NV_ERR_NOT_SUPPORTED.0);
        assert!(program.seen.is_empty());
        let refused = (CallKind::Control, COMMAND, Reason::Unlisted);
        assert_eq!(noted(&program), [refused]);
    }
}
