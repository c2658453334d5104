// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The chart in its shapes and its examples, judged by the real apiserver.

use crate::{
    patience::{must, wait, Outcome},
    world::{chart, objects, render, render_upgrade, World},
};
use cgpu_dra::{asked, config::GpuConfig, names::DRIVER};
use k8s_openapi::api::core::v1::Secret;
use kube::{api::DeleteParams, Api};
use serde_json::{json, Value};
use std::{
    fs,
    path::{Path, PathBuf},
};

const PROFILES: &str = "devicePlugin.profiles={8g=8Gi:20:4}";
/// The kinds of objects of which a cluster has one.
const OF_ALL: [&str; 1] = ["DeviceClass"];

/// The chart asks for each name that is converted, and renders in its other shapes.
pub(crate) async fn the_chart_has_all_its_shapes(world: &mut World) -> Outcome {
    let binaries = &world.plane.binaries;
    let whole = chart(
        binaries,
        &[
            "webhook.enabled=true",
            "metrics.serviceMonitor=true",
            "metrics.serviceMonitorLabels.release=prometheus",
            "metrics.port=9500",
        ],
    );
    let hook = whole
        .iter()
        .find(|o| o["kind"] == "MutatingWebhookConfiguration");
    let hook = hook.ok_or("no webhook")?.to_string();
    for name in asked::names() {
        must(hook.contains(&format!("\\\"{name}\\\"")), name)?;
    }
    let plugin = chart(binaries, &[PROFILES]);
    let kinds: Vec<_> = plugin.iter().filter_map(|o| o["kind"].as_str()).collect();
    must(kinds == ["ServiceAccount", "DaemonSet"], &kinds)?;
    // No burst is as good a bound as any. A GPU that is whole twice is no whole GPU.
    for (burst, overcommit, is_whole) in [("200", "199", true), ("0", "200", false)] {
        let allow = format!("allow.burstMs={burst}");
        let shared = render(
            binaries,
            "1.36.0",
            &[&allow, &format!("overcommit={overcommit}")],
        )?;
        let bound = shared.contains(&format!("- --allow-burst={burst}\n"));
        must(bound, (burst, &shared))?;
        must(
            shared.contains("extendedResourceName: cgpu.io/gpu") == is_whole,
            &shared,
        )?;
    }
    let narrow = chart(
        binaries,
        &[
            "webhook.enabled=true",
            "webhook.namespaceSelector.matchLabels.gpus=shared",
            "image.pullSecrets={registry}",
        ],
    );
    let selector = json!({"matchLabels": {"gpus": "shared"}});
    let with = |place: &str, value: &Value| {
        let has = |object: &&Value| object.pointer(place) == Some(value);
        narrow.iter().filter(has).count()
    };
    // The webhook and the policy that refuses what it has not turned over.
    must(
        with("/webhooks/0/namespaceSelector", &selector) == 1
            && with("/spec/matchConstraints/namespaceSelector", &selector) == 1,
        "namespaces",
    )?;
    let secrets = json!([{"name": "registry"}]);
    must(
        with("/spec/template/spec/imagePullSecrets", &secrets) == 2,
        "Secrets of the registry",
    )?;
    the_monitor_finds_the_figures(&whole)?;
    figures_can_be_had_otherwise(binaries)?;
    operator_is_known(world).await?;
    for object in whole.into_iter().chain(plugin).chain(narrow) {
        world.would_apply(object).await?;
    }
    must(
        render(binaries, "1.33.0", &[PROFILES]).is_ok(),
        "not for 1.33",
    )?;
    for (version, settings, said) in [
        ("1.33.0", &[][..], "set devicePlugin.profiles"),
        ("1.30.0", &[PROFILES], "incompatible with Kubernetes"),
        (
            "1.36.0",
            &[PROFILES, "webhook.enabled=true"],
            "keep one of the two",
        ),
    ] {
        let refused = render(binaries, version, settings);
        must(
            refused.as_ref().is_err_and(|why| why.contains(said)),
            (version, settings, refused),
        )?;
    }
    Ok(())
}

/// An upgrade keeps certificate and path, so that pods and apiserver agree all the time.
pub(crate) async fn an_upgrade_keeps_the_certificate(world: &mut World) -> Outcome {
    let settings = ["webhook.enabled=true"];
    let first = render_upgrade(&world.plane, &settings)?;
    must(
        first != render_upgrade(&world.plane, &settings)?,
        "not random",
    )?;
    let mut made = objects(&first).into_iter();
    let secret = made.find(|object| object["kind"] == "Secret");
    world.apply(secret.ok_or("no Secret")?).await;
    must(
        first == render_upgrade(&world.plane, &settings)?,
        "changed by an upgrade",
    )?;
    let secrets: Api<Secret> = world.api("cgpu");
    let none = DeleteParams::default();
    let deleted = secrets.delete("cgpu-webhook", &none).await;
    deleted.map(|_| ()).map_err(|e| e.to_string())
}

/// The ServiceMonitor chooses the Service, this the driver's pods, and both name the port that they
/// have.
fn the_monitor_finds_the_figures(whole: &[Value]) -> Outcome {
    let of = |kind: &str, name: &str| {
        let mut found = whole.iter().filter(|object| object["kind"] == kind);
        found
            .find(|object| object["metadata"]["name"] == name)
            .ok_or(format!("no {kind}"))
    };
    let (monitor, service) = (
        of("ServiceMonitor", "cgpu-dra")?,
        of("Service", "cgpu-dra")?,
    );
    let set = of("DaemonSet", "cgpu-dra")?;
    let chosen = &monitor["spec"]["selector"]["matchLabels"];
    must(
        chosen.is_object() && *chosen == service["metadata"]["labels"],
        chosen,
    )?;
    let chosen = &service["spec"]["selector"];
    let pod = &set["spec"]["template"];
    must(
        chosen.is_object() && *chosen == pod["metadata"]["labels"],
        chosen,
    )?;
    for object in [monitor, service] {
        must(
            object["metadata"]["namespace"] == set["metadata"]["namespace"],
            "the monitor looks elsewhere",
        )?;
    }
    must(
        monitor["metadata"]["labels"] == json!({"release": "prometheus"}),
        "no operator would choose the monitor",
    )?;
    let container = &pod["spec"]["containers"][0];
    let port = &container["ports"][0];
    let endpoint = &monitor["spec"]["endpoints"][0];
    let of_service = &service["spec"]["ports"][0];
    must(
        endpoint["port"] == of_service["name"]
            && of_service["targetPort"] == port["name"]
            && port["containerPort"] == 9500,
        (endpoint, of_service, port),
    )?;
    let arguments = container["args"].to_string();
    for option in ["--metrics=0.0.0.0:9500", "--metrics-login"] {
        must(arguments.contains(option), &arguments)?;
    }
    // The token is Prometheus' own, and nobody has signed the driver's certificate.
    must(
        endpoint["scheme"] == "https"
            && endpoint["bearerTokenFile"].is_string()
            && endpoint["tlsConfig"]["insecureSkipVerify"] == true,
        endpoint,
    )?;
    // The figures say themselves whose they are, and the dashboard asks for the node.
    must(endpoint["honorLabels"] == true, endpoint)?;
    must(
        endpoint["relabelings"][0]["targetLabel"] == "node",
        endpoint,
    )?;
    let policies = whole.iter().filter(|o| o["kind"] == "NetworkPolicy");
    let mut open = policies.filter(|o| o["spec"]["podSelector"]["matchLabels"] == *chosen);
    let open = open.next().ok_or("nobody may ask for the figures")?;
    must(
        open["spec"]["ingress"][0]["ports"] == json!([{"port": 9500}]),
        open,
    )
}

/// Without a login, with another token, not at all; and no value is needed for a login.
fn figures_can_be_had_otherwise(binaries: &Path) -> Outcome {
    let rendered = |settings: &[&str]| render(binaries, "1.36.0", settings);
    let login = ["--metrics-login", "tokenreviews", "scheme: https"];
    let monitor = "metrics.serviceMonitor=true";
    let own = "bearerTokenFile: ";
    for (settings, has_login, parts, others) in [
        (
            &[monitor, "metrics.login=null"][..],
            true,
            &[own][..],
            &["MutatingWebhook"][..],
        ),
        (
            &[monitor, "metrics.tokenSecret=reader"],
            true,
            &["credentials: {name: reader, key: token}"],
            &[own],
        ),
        (
            &[monitor, "metrics.login=false"],
            false,
            &["--metrics=0.0.0.0:9400"],
            &[own],
        ),
        (
            &["metrics.port=0"],
            false,
            &[],
            &["--metrics", "kind: NetworkPolicy"],
        ),
    ] {
        let text = rendered(settings)?;
        for part in login {
            must(text.contains(part) == has_login, (settings, part))?;
        }
        for part in parts {
            must(text.contains(part), (settings, part))?;
        }
        for part in others {
            must(!text.contains(part), (settings, part))?;
        }
    }
    Ok(())
}

/// From now on the apiserver judges objects of the Prometheus operator.
async fn operator_is_known(world: &World) -> Outcome {
    let folder = std::env::var_os("CGPU_MONITORING").map(PathBuf::from);
    let folder = folder.ok_or("CGPU_MONITORING is not set: tests/kubernetes/test.sh sets it")?;
    for kinds in ["servicemonitors", "prometheusrules"] {
        let file = folder.join(format!("monitoring.coreos.com_{kinds}.yaml"));
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        for object in objects(&text) {
            world.apply(object).await;
        }
        let path = format!("/apis/monitoring.coreos.com/v1/{kinds}");
        wait(&format!("the apiserver to know {kinds}"), || async {
            let listed = http::Request::get(&path).body(vec![]).ok()?;
            world.client.request_text(listed).await.ok().map(|_| ())
        })
        .await?;
    }
    Ok(())
}

/// The apiserver takes each example, the driver the parameters in them, and the Prometheus operator
/// the alerts.
pub(crate) async fn the_examples_are_sound(world: &mut World) -> Outcome {
    world.namespace("examples").await;
    let chart = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/helm/cgpu"));
    let folder = fs::read_dir(chart.join("examples")).map_err(|e| e.to_string())?;
    let (mut files, mut parameters) = (0, 0);
    for file in folder.flatten() {
        let text = fs::read_to_string(file.path()).map_err(|e| e.to_string())?;
        let found = objects(&text);
        must(!found.is_empty(), file.path())?;
        files += 1;
        for mut object in found {
            for place in ["/spec/config", "/spec/spec/devices/config"] {
                let config = object.pointer(place).and_then(Value::as_array);
                for opaque in config.into_iter().flatten().map(|one| &one["opaque"]) {
                    must(opaque["driver"] == DRIVER, opaque)?;
                    GpuConfig::parse(&opaque["parameters"]).map_err(|e| e.to_string())?;
                    parameters += 1;
                }
            }
            if !OF_ALL.contains(&object["kind"].as_str().unwrap_or_default()) {
                object["metadata"]["namespace"] = "examples".into();
            }
            world.would_apply(object).await?;
        }
    }
    must(files >= 5 && parameters == 2, (files, parameters))?;
    // The page has the first of them too.
    let pod = fs::read_to_string(chart.join("examples/pod.yaml")).map_err(|e| e.to_string())?;
    let page = chart.join("../../../docs/kubernetes.md");
    let page = fs::read_to_string(page).map_err(|e| e.to_string())?;
    let said = pod
        .split_once('\n')
        .is_some_and(|(_, objects)| page.contains(objects));
    must(said, "docs/kubernetes.md has another examples/pod.yaml")?;
    operator_is_known(world).await?;
    let alerts = chart.join("../../prometheus/cgpu.rules.yml");
    let alerts = fs::read_to_string(alerts).map_err(|e| e.to_string())?;
    // As docs/kubernetes.md says: the groups of the file are the spec.
    let rule = format!(
        "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n\
         metadata: {{name: cgpu, namespace: examples}}\nspec:\n{}",
        alerts
            .lines()
            .fold(String::new(), |all, line| all + "  " + line + "\n")
    );
    let rule = objects(&rule).pop().ok_or("no alerts")?;
    must(rule["spec"]["groups"].is_array(), &rule)?;
    // The operator's job is the Service's name.
    let silent = &rule["spec"]["groups"][0]["rules"][0]["expr"];
    must(
        silent == "up{job=~\"cgpu|cgpu-dra\"} == 0",
        "the alert asks for another job than the Service's name",
    )?;
    world.would_apply(rule).await
}
