// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A kubelet for tests, as far as a DRA driver sees one: it speaks gRPC with its sockets.

use crate::connection::Connection;
use cgpu_dra::{
    names::REGISTRATION,
    proto::{
        ClaimReference, ClaimsRequest, Nothing, PluginInfo, PrepareResponse, PreparedAnswer,
        RegistrationStatus, UnprepareResponse,
    },
};
use std::path::Path;

/// A kubelet and the driver that it has registered.
pub(crate) struct TestKubelet {
    pub(crate) plugin: Connection,
    pub(crate) info: PluginInfo,
}

const V1: &str = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin";

impl TestKubelet {
    /// Registers the driver whose socket is in this folder.
    pub(crate) async fn register(registry: &Path) -> Self {
        let socket = registry.join(REGISTRATION);
        let authority = socket.display().to_string().replace('/', "%2F");
        let mut registration = Connection::open_as(&socket, &authority).await;
        let info: PluginInfo = registration
            .call("/pluginregistration.Registration/GetInfo", &Nothing {})
            .await
            .expect("info");
        let plugin = Connection::open(Path::new(&info.endpoint)).await;
        let status = RegistrationStatus {
            plugin_registered: true,
            error: String::new(),
        };
        let path = "/pluginregistration.Registration/NotifyRegistrationStatus";
        let _: Nothing = registration.call(path, &status).await.expect("noted");
        Self { plugin, info }
    }

    pub(crate) async fn prepare(
        &mut self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> PreparedAnswer {
        let request = one(namespace, name, uid);
        let path = format!("{V1}/NodePrepareResources");
        let answer = self.plugin.call::<PrepareResponse>(&path, &request).await;
        answer
            .expect("an answer")
            .claims
            .remove(uid)
            .expect("each claim has an answer")
    }

    pub(crate) async fn unprepare(&mut self, namespace: &str, name: &str, uid: &str) -> String {
        let request = one(namespace, name, uid);
        let path = format!("{V1}/NodeUnprepareResources");
        let answer = self.plugin.call::<UnprepareResponse>(&path, &request).await;
        answer
            .expect("an answer")
            .claims
            .remove(uid)
            .expect("each claim has an answer")
            .error
    }
}

pub(crate) fn one(namespace: &str, name: &str, uid: &str) -> ClaimsRequest {
    ClaimsRequest {
        claims: vec![ClaimReference {
            namespace: namespace.to_owned(),
            uid: uid.to_owned(),
            name: name.to_owned(),
        }],
    }
}
