// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The driver on a real control plane: `make test-kubernetes` builds one and runs this. Without
//! CGPU_KUBERNETES, the folder of its programs, it says that it is skipped.

#[path = "cluster/cases.rs"]
mod cases;
#[path = "cluster/chart.rs"]
mod chart;
mod connection;
#[path = "cluster/control_plane.rs"]
mod control_plane;
mod fake_node;
#[path = "cluster/faults.rs"]
mod faults;
mod kubelet;
#[path = "cluster/losses.rs"]
mod losses;
#[path = "cluster/node_pods.rs"]
mod node_pods;
#[path = "cluster/patience.rs"]
mod patience;
mod random;
#[path = "cluster/reviews.rs"]
mod reviews;
#[path = "cluster/rights.rs"]
mod rights;
#[path = "cluster/selectors.rs"]
mod selectors;
#[path = "cluster/storm.rs"]
mod storm;
#[path = "cluster/world.rs"]
mod world;

use futures_util::{future::LocalBoxFuture, FutureExt};
use patience::Outcome;
use std::{panic::AssertUnwindSafe, path::PathBuf, process::ExitCode, time::Instant};
use world::World;

type Case = for<'a> fn(&'a mut World) -> LocalBoxFuture<'a, Outcome>;

/// Cases in their order: name and function.
macro_rules! cases {
    ($($module:ident::$name:ident),* $(,)?) => {
        [$({
            fn call(world: &mut World) -> LocalBoxFuture<'_, Outcome> {
                $module::$name(world).boxed_local()
            }
            (stringify!($name), call as Case)
        }),*]
    };
}

fn main() -> ExitCode {
    let Some(binaries) = std::env::var_os("CGPU_KUBERNETES").map(PathBuf::from) else {
        println!("cluster: SKIPPED, it needs a control plane: make test-kubernetes");
        return ExitCode::SUCCESS;
    };
    let wanted: Vec<_> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let failed = runtime.block_on(run(&binaries, &wanted));
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn run(binaries: &std::path::Path, wanted: &[String]) -> usize {
    let cases = cases![
        cases::two_pods_share_a_gpu,
        cases::sizes_are_rounded_and_gpus_fill_up,
        cases::one_claim_has_several_gpus,
        cases::slices_follow_the_gpus,
        cases::a_failed_gpu_is_tainted,
        losses::a_driver_that_is_gone_taints_gpus,
        losses::a_lost_instance_is_made_again,
        cases::a_driver_comes_back,
        cases::a_claim_is_resized,
        cases::conditions_come_and_go,
        selectors::claims_select_gpus_by_attributes,
        cases::quotas_and_extended_resources,
        rights::the_account_is_kept_to_its_node,
        rights::a_claim_keeps_its_allocation,
        rights::a_user_keeps_a_claim_in_use,
        rights::the_figures_take_a_login,
        cases::a_gpu_has_64_instances,
        chart::the_chart_has_all_its_shapes,
        chart::the_examples_are_sound,
        chart::an_upgrade_keeps_the_certificate,
        reviews::other_systems_names_become_claims,
        storm::random_claims_never_exceed_a_gpu,
        storm::a_thousand_nodes,
        storm::dropped_fields_are_noticed,
    ];
    faults::note_panics();
    let began = Instant::now();
    let mut world = World::start(binaries).await;
    println!(
        "cluster: a control plane after {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let (mut passed, mut failed) = (0, 0);
    for (name, case) in cases {
        if !wanted.is_empty() && !wanted.iter().any(|w| name.contains(w.as_str())) {
            continue;
        }
        let began = Instant::now();
        let ended = AssertUnwindSafe(case(&mut world)).catch_unwind().await;
        let mut outcome = ended.unwrap_or_else(|_| Err("it panicked".to_owned()));
        let seconds = began.elapsed().as_secs_f64();
        world.clean().await;
        let faults = faults::take();
        if !faults.is_empty() {
            let why = outcome.err().into_iter().chain(faults);
            outcome = Err(why.collect::<Vec<_>>().join("; "));
        }
        match outcome {
            Ok(()) => {
                passed += 1;
                println!("ok {name} ({seconds:.1} s)");
            }
            Err(why) => {
                failed += 1;
                println!("not ok {name} ({seconds:.1} s): {why}");
            }
        }
    }
    println!("cluster: {passed} passed, {failed} failed");
    failed
}
