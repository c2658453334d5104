// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A control plane of Kubernetes on this machine: etcd, kube-apiserver, kube-scheduler and
//! kube-controller-manager as children, on ports of their own, with everything in one folder.

use kube::{config::AuthInfo, Client, Config};
use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub(crate) const ADMIN: &str = "admin-of-the-tests";
const CONTROLLERS: &str = "resourceclaim-controller,device-taint-eviction-controller,\
                           resourcequota-controller,garbage-collector-controller,\
                           namespace-controller,serviceaccount-controller,\
                           clusterrole-aggregation-controller";

/// The control plane; it ends with this.
pub(crate) struct ControlPlane {
    pub(crate) binaries: PathBuf,
    pub(crate) folder: PathBuf,
    etcd: u16,
    port: u16,
    children: Vec<Child>,
    pub(crate) admin: Client,
}

/// A free port of this machine.
pub(crate) fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

/// A client of the apiserver at this port.
pub(crate) fn client(port: u16, token: &str) -> Client {
    let url = format!("https://127.0.0.1:{port}");
    let mut config = Config::new(url.parse().expect("a URL"));
    // The apiserver makes its certificate itself, for this test.
    config.accept_invalid_certs = true;
    config.auth_info = AuthInfo {
        token: Some(token.to_owned().into()),
        ..AuthInfo::default()
    };
    config.read_timeout = Some(Duration::from_secs(295));
    Client::try_from(config).expect("a client")
}

impl ControlPlane {
    pub(crate) async fn start(binaries: &Path) -> Self {
        let folder = std::env::temp_dir().join(format!("cgpu-cluster-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("made");
        let (etcd, at) = (port(), port());
        let mut plane = Self {
            binaries: binaries.to_owned(),
            folder,
            etcd,
            port: at,
            children: vec![],
            admin: client(at, ADMIN),
        };
        let made = Command::new("openssl")
            .args([
                "ecparam",
                "-name",
                "prime256v1",
                "-genkey",
                "-noout",
                "-out",
            ])
            .arg(plane.folder.join("accounts.key"))
            .status();
        assert!(made.expect("openssl").success());
        fs::write(
            plane.folder.join("tokens"),
            format!("{ADMIN},admin,1,system:masters\n"),
        )
        .expect("written");
        let peer = port();
        let data = format!("--data-dir={}", plane.folder.join("etcd").display());
        plane.spawn(
            "etcd",
            &[
                data,
                "--unsafe-no-fsync".to_owned(),
                "--quota-backend-bytes=2147483648".to_owned(),
                format!("--listen-client-urls=http://127.0.0.1:{etcd}"),
                format!("--advertise-client-urls=http://127.0.0.1:{etcd}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
            ],
        );
        plane.apiserver(at, &[]).await;
        plane.write_kubeconfig();
        let kubeconfig = format!("--kubeconfig={}", plane.folder.join("kubeconfig").display());
        let quiet = [
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let qps = [
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=1000".to_owned(),
        ];
        let both: Vec<_> = [kubeconfig].into_iter().chain(quiet).chain(qps).collect();
        plane.spawn("kube-scheduler", &both);
        let key = plane.folder.join("accounts.key").display().to_string();
        let own = [
            format!("--controllers={CONTROLLERS}"),
            format!("--service-account-private-key-file={key}"),
        ];
        let all: Vec<_> = both.into_iter().chain(own).collect();
        plane.spawn("kube-controller-manager", &all);
        plane
    }

    fn write_kubeconfig(&self) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{}', \
             insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: u, user: {{token: {ADMIN}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
            self.port
        );
        fs::write(self.folder.join("kubeconfig"), text).expect("written");
    }

    /// Starts an apiserver at a port and waits until it is ready.
    pub(crate) async fn apiserver(&mut self, at: u16, more: &[String]) {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let key = file("accounts.key");
        let mut arguments = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd),
            format!("--cert-dir={}", file(&format!("certs-{at}"))),
            format!("--secure-port={at}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--service-account-issuer=https://cgpu.test".to_owned(),
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            format!("--token-auth-file={}", file("tokens")),
            "--authorization-mode=Node,RBAC".to_owned(),
            // Nobody is to be held up in a test with many clients.
            "--max-requests-inflight=0".to_owned(),
            "--max-mutating-requests-inflight=0".to_owned(),
            "--enable-priority-and-fairness=false".to_owned(),
            // The driver of the chart is.
            "--allow-privileged=true".to_owned(),
            "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true".to_owned(),
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
        ];
        arguments.extend_from_slice(more);
        self.spawn("kube-apiserver", &arguments);
        let asked = client(at, ADMIN);
        let began = Instant::now();
        loop {
            let ready = http::Request::get("/readyz")
                .body(vec![])
                .expect("a request");
            if asked
                .request_text(ready)
                .await
                .is_ok_and(|text| text == "ok")
            {
                return;
            }
            assert!(
                began.elapsed() < Duration::from_secs(240),
                "no apiserver; see {:?}",
                self.folder
            );
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// The port of a second apiserver on the same etcd, with other feature gates.
    pub(crate) async fn second_apiserver(&mut self, gates: &str) -> u16 {
        let at = port();
        self.apiserver(at, &[format!("--feature-gates={gates}")])
            .await;
        at
    }

    /// A client with a token of its own.
    pub(crate) fn client_of(&self, token: &str) -> Client {
        client(self.port, token)
    }

    fn spawn(&mut self, name: &str, arguments: &[String]) {
        let log = self
            .folder
            .join(format!("{name}-{}.log", self.children.len()));
        let log = File::create(log).expect("made");
        let child = Command::new(self.binaries.join(name))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("cloned"))
            .stderr(log)
            .spawn();
        self.children.push(child.expect(name));
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::env::var_os("KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
