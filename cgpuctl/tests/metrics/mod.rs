// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `metrics`: what it prints is what a parser of Prometheus' format reads, and over HTTP it is the
//! same.

use super::{
    busy_host, done, fails,
    fake::{errno, Fake, Op},
    golden,
};
use cgpu_uapi::Cause;
use cgpuctl::{command::metrics::serve, exit::Exit};
use nix::errno::Errno;
use openmetrics_parser::{prometheus::parse_prometheus, PrometheusType, PrometheusValue};
use std::{
    io::{Read, Write},
    net::TcpStream,
};

#[test]
fn metrics_print_their_golden() {
    golden("metrics", busy_host, "metrics");
    golden("metrics_none", || Fake::new(0), "metrics");
}

/// A sample as the parser read it.
fn value(page: &str, family: &str, labels: &[(&str, &str)]) -> f64 {
    let read = parse_prometheus(page).expect("Prometheus' format");
    let family = read.families.get(family).expect(family);
    let sample = family.iter_samples().find(|sample| {
        let has = sample.get_labelset().expect("labels");
        labels
            .iter()
            .all(|(key, wanted)| has.get_label_value(key) == Some(wanted))
    });
    match sample.expect("a sample").value {
        PrometheusValue::Gauge(n) => n.as_f64(),
        PrometheusValue::Counter(ref c) => c.value.as_f64(),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_parser_of_prometheus_reads_the_figures() {
    let page = done(&busy_host(), "metrics");
    let read = parse_prometheus(&page).expect("Prometheus' format");
    assert_eq!(read.families.len(), 34);
    for (name, family) in &read.families {
        assert!(!family.help.is_empty(), "{name}");
        let counter = family.family_type == PrometheusType::Counter;
        assert_eq!(counter, name.ends_with("_total"), "{name}");
    }
    let train = [("instance", "train"), ("gpu", "0")];
    let of = |family| value(&page, family, &train);
    assert_eq!(
        of("cgpu_instance_memory_limit_bytes"),
        f64::from(24 << 10) * 1_048_576.0
    );
    assert_eq!(
        of("cgpu_instance_memory_used_bytes"),
        f64::from(10 << 10) * 1_048_576.0
    );
    let parts = [
        "cgpu_instance_memory_used_bytes",
        "cgpu_instance_memory_overhead_bytes",
        "cgpu_instance_memory_managed_bytes",
    ];
    let sum: f64 = parts.into_iter().map(of).sum();
    assert_eq!(of("cgpu_instance_memory_charged_bytes"), sum);
    assert_eq!(
        of("cgpu_instance_memory_peak_bytes"),
        f64::from(12 << 10) * 1_048_576.0
    );
    assert_eq!(of("cgpu_instance_memory_overhead_bytes"), 9_240_576.0);
    assert_eq!(of("cgpu_instance_processes"), 1.0);
    assert_eq!(of("cgpu_instance_weight"), 30.0);
    for (kind, count) in [("memory", 3.0), ("call", 1.0)] {
        let labels = [train[0], train[1], ("kind", kind)];
        assert_eq!(value(&page, "cgpu_instance_refused_total", &labels), count);
    }
    assert_eq!(value(&page, "cgpu_gpu_instances", &[("gpu", "0")]), 2.0);
    assert_eq!(value(&page, "cgpu_info", &[("driver", "580.159.04")]), 1.0);
}

#[test]
fn instances_are_reported_without_the_driver() {
    for cause in [Cause::DriverMissing, Cause::UnknownDriver] {
        let host = busy_host().fail(Op::Gpus, 0, errno(cause));
        let page = done(&host, "metrics");
        assert!(
            page.contains("cgpu_instance_weight{instance=\"train\""),
            "{page}"
        );
    }
    fails(
        &Fake::new(1).fail(Op::Open, 0, Errno::ENOENT),
        "metrics",
        Exit::NotLoaded,
    );
}

/// Sends the requests to a server on this host and returns its answers.
fn ask(host: &Fake, requests: &'static [&'static str]) -> Vec<String> {
    let (say, hear) = std::sync::mpsc::channel();
    let client = std::thread::spawn(move || {
        let address: String = hear.recv().expect("an address");
        let one = |request: &&str| {
            let mut stream = TcpStream::connect(&address).expect("connected");
            let text = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(text.as_bytes()).expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("answered");
            answer
        };
        requests.iter().map(one).collect()
    });
    let loopback = ([127, 0, 0, 1], 0).into();
    let mut said = FirstLine(say, String::new());
    serve(host, loopback, Some(requests.len()), &mut said).expect("served");
    client.join().expect("the client ends")
}

#[test]
fn over_http_it_is_the_same_page() {
    let host = busy_host();
    let page = done(&host, "metrics");
    let answers = ask(
        &host,
        &["GET /metrics", "GET /metrics?x", "GET /", "POST /metrics"],
    );
    assert!(answers[0].starts_with("HTTP/1.1 200"), "{}", answers[0]);
    assert!(
        answers[0].contains("content-type: text/plain; version=0.0.4"),
        "{}",
        answers[0]
    );
    assert!(answers[0].ends_with(&page), "{}", answers[0]);
    assert!(answers[1].ends_with(&page));
    assert!(answers[2].starts_with("HTTP/1.1 404"), "{}", answers[2]);
    assert!(answers[3].starts_with("HTTP/1.1 405"), "{}", answers[3]);
}

#[test]
fn server_survives_a_missing_module() {
    let host = busy_host().fail(Op::Open, 0, Errno::ENOENT);
    let answers = ask(&host, &["GET /metrics", "GET /metrics"]);
    assert!(answers[0].starts_with("HTTP/1.1 503"), "{}", answers[0]);
    assert!(answers[0].contains("not loaded"), "{}", answers[0]);
    assert!(answers[1].starts_with("HTTP/1.1 200"), "{}", answers[1]);
}

#[test]
fn a_port_that_is_taken_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    let sentence = fails(
        &busy_host(),
        &format!("metrics --listen {address}"),
        Exit::Failed,
    );
    assert!(sentence.contains("EADDRINUSE"), "{sentence}");
}

/// The server gives up a silent client after five seconds. On a busy machine an answer may take a
/// while by itself: one of three has to come before that.
#[test]
fn silent_clients_hold_up_nobody() {
    let soon = std::time::Duration::from_secs(4);
    assert!((0..3).any(|_| time_beside_silent_clients() < soon));
}

/// The time of an answer beside 32 clients, each of which says nothing or half a line.
fn time_beside_silent_clients() -> std::time::Duration {
    let host = busy_host();
    let (say, hear) = std::sync::mpsc::channel();
    let client = std::thread::spawn(move || {
        let address: String = hear.recv().expect("an address");
        let connect = || TcpStream::connect(&address).expect("connected");
        let silent: Vec<_> = (0..32).map(|_| connect()).collect();
        for mut stream in silent.iter().take(16) {
            stream.write_all(b"GET /metr").expect("sent");
        }
        let began = std::time::Instant::now();
        let mut stream = connect();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let took = began.elapsed();
        drop(silent);
        took
    });
    let mut said = FirstLine(say, String::new());
    serve(&host, ([127, 0, 0, 1], 0).into(), Some(1), &mut said).expect("served");
    client.join().expect("answered")
}

/// Hands over the address of the server when its line is whole.
struct FirstLine(std::sync::mpsc::Sender<String>, String);

impl Write for FirstLine {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1 += &String::from_utf8_lossy(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let address = self.1.split("http://").nth(1);
        let address = address.and_then(|rest| rest.split('/').next());
        let address = address.expect("an address").to_owned();
        self.0.send(address).map_err(std::io::Error::other)
    }
}
