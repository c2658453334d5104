// SPDX-License-Identifier: GPL-2.0
//! `/proc/cgpu_km`: formats, rights, namespaces.

use std::fs;

use crate::{
    guest::{
        instance::Instance,
        process::{drop_admin, in_child, spawn, unshare},
        tools::{at, control, equal, fails, holds, sys, Test, Verdict, GIB, GPU, MIB},
    },
    sys as os,
};

pub(super) const TESTS: &[Test] = &[
    ("procfs: files of a GPU", gpu_files),
    ("procfs: files of an instance", instance_files),
    ("procfs: meminfo names the processes", meminfo),
    ("procfs: limit and weight can be written", written),
    ("procfs: writing needs CAP_SYS_ADMIN", write_needs_admin),
    ("procfs: closed to other namespaces", namespaces),
    ("procfs: reading while instances come and go", churn),
];

fn path(file: &str) -> String {
    format!("/proc/cgpu_km/{file}")
}

fn read(file: &str) -> Result<String, String> {
    at(file, fs::read_to_string(path(file)))
}

fn gpu_files() -> Verdict {
    holds("version", read("version")?.trim().split('.').count() == 3)?;
    let text = read(&format!("{GPU}/max_inst"))?;
    equal("max_inst", &text.as_str(), &"16\n")?;
    let text = read(&format!("{GPU}/free_weight"))?;
    equal("free_weight", &text.as_str(), &"100\n")?;
    let policy = read(&format!("{GPU}/policy"))?;
    holds("policy", policy.trim().parse::<u32>().is_ok_and(|p| p <= 5))
}

fn instance_files() -> Verdict {
    let instance = Instance::new("proc", GIB)?;
    let id = instance.get()?.id;
    let file = |name: &str| read(&format!("{GPU}/proc/{name}"));
    equal("id", &file("id")?, &format!("{id}\n"))?;
    equal("memsize", &file("memsize")?, &format!("{GIB}\n"))?;
    equal("meminfo", &file("meminfo")?, &format!("Free: {GIB}\n"))?;
    equal("weight", &file("weight")?.as_str(), &"1\n")?;
    let status = file("status")?;
    for line in status.lines() {
        let key = line.split_once(": ").map(|(key, _)| key);
        holds(line, key.is_some_and(|k| !k.is_empty()))?;
    }
    holds(
        "limit",
        status.contains(&format!("memory_limit_bytes: {GIB}\n")),
    )
}

fn meminfo() -> Verdict {
    let instance = Instance::new("meminfo", GIB)?;
    let client = instance.client()?;
    at("memory", client.memory(0x5C00_0010, 64 * MIB))?;
    let text = read(&format!("{GPU}/meminfo/meminfo"))?;
    let wanted = format!(
        "Free: {}\nPID: {} Mem: {}\n",
        GIB - 64 * MIB,
        std::process::id(),
        64 * MIB
    );
    client.close();
    equal("meminfo", &text, &wanted)?;
    let text = read(&format!("{GPU}/meminfo/meminfo"))?;
    equal("after close", &text, &format!("Free: {GIB}\n"))
}

fn written() -> Verdict {
    let instance = Instance::new("written", GIB)?;
    let write = |file: &str, text: &str| {
        let path = path(&format!("{GPU}/written/{file}"));
        fs::write(path, text).map_err(|e| e.raw_os_error().unwrap_or(0))
    };
    sys("memsize", write("memsize", &format!("{}\n", 2 * GIB)))?;
    sys("weight", write("weight", "42"))?;
    let seen = instance.get()?;
    equal("limit", &seen.memory_limit_bytes, &(2 * GIB))?;
    equal("weight", &seen.weight, &42)?;
    for (file, text) in [
        ("memsize", "0"),
        ("memsize", "many"),
        ("memsize", "-1"),
        ("memsize", ""),
        ("weight", "0"),
        ("weight", "101"),
        ("weight", "99999999999999999999"),
    ] {
        // Writing nothing at all is no write.
        if !text.is_empty() {
            holds(text, write(file, text).is_err())?;
        }
    }
    holds("id can be written", write("id", "1").is_err())?;
    let seen = instance.get()?;
    equal("limit", &seen.memory_limit_bytes, &(2 * GIB))?;
    equal("weight", &seen.weight, &42)
}

fn write_needs_admin() -> Verdict {
    let instance = Instance::new("noadmin", GIB)?;
    let file = path(&format!("{GPU}/noadmin/memsize"));
    // Opened by someone who may, written by someone who may not.
    let open = at(&file, fs::OpenOptions::new().write(true).open(&file))?;
    in_child(|| {
        use std::io::Write;
        sys("capset", drop_admin())?;
        holds("write", (&open).write_all(b"1073741824").is_err())?;
        holds("open", fs::write(&file, "2147483648").is_err())
    })?;
    equal("limit", &instance.get()?.memory_limit_bytes, &GIB)
}

fn namespaces() -> Verdict {
    let _instance = Instance::new("spaces", GIB)?;
    let files = ["version".to_owned(), format!("{GPU}/spaces/meminfo")];
    let closed = |files: &[String]| {
        for file in files {
            let open = os::open(&path(file), libc::O_RDONLY);
            fails(file, open.map(drop), libc::EPERM)?;
        }
        Ok(())
    };
    in_child(|| {
        sys("user namespace", unshare(libc::CLONE_NEWUSER))?;
        closed(&files)
    })?;
    in_child(|| {
        sys("PID namespace", unshare(libc::CLONE_NEWPID))?;
        in_child(|| closed(&files))
    })
}

fn churn() -> Verdict {
    let _kept = Instance::new("kept", GIB)?;
    let reader = spawn(|| {
        for _ in 0..300 {
            let kept = read(&format!("{GPU}/kept/meminfo"));
            if kept != Ok(format!("Free: {GIB}\n")) {
                return 1;
            }
            // These come and go: any error is right, a wrong text is not.
            if let Ok(text) = read(&format!("{GPU}/churn/memsize")) {
                if text != format!("{}\n", 64 * MIB) {
                    return 2;
                }
            }
        }
        0
    });
    let reader = sys("fork", reader)?;
    let c = control()?;
    let mut result = Ok(());
    for _ in 0..60 {
        let made = c.create("churn", GPU, 64 * MIB, 1).map(drop);
        result = result.and(sys("create", made));
        // A reader may be in a file of it, but has no node of it open.
        result = result.and(sys("destroy", c.destroy("churn", GPU)));
    }
    let status = sys("wait", os::wait(reader))?;
    equal("reader", &status, &0)?;
    result
}
