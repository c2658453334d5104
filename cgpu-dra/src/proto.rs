// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The kubelet's messages, written down by hand: the numbers of the fields are the protocol. So no
//! compiler of `.proto` files is needed for a build.
//!
//! Sources of the numbers: `pkg/apis` of the module k8s.io/kubelet, releases 1.34 to 1.37.

use std::collections::BTreeMap;

/// A plugin's description of itself (`pluginregistration`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct PluginInfo {
    /// `DRAPlugin`.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// The driver's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Path of the socket of its services.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// The services, like `v1.DRAPlugin`.
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// How the registration went.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegistrationStatus {
    /// Whether the kubelet knows the plugin now.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// Why not.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A message without fields.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Nothing {}

/// A claim as the kubelet names it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClaimReference {
    /// Its namespace.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// Its uid.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Claims to be prepared, or whose pods have ended. Versions v1 and v1beta1 agree on it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClaimsRequest {
    /// The claims.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<ClaimReference>,
}

/// The outcome for claims that were to be prepared. Version v1beta1 lacks `share_id`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PrepareResponse {
    /// By uid.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, PreparedAnswer>,
}

/// The outcome for one claim.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PreparedAnswer {
    /// The CDI devices for its containers.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<PreparedDevice>,
    /// Why nothing.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A device of a claim.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PreparedDevice {
    /// The requests of the claim that it serves.
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    /// Its pool.
    #[prost(string, tag = "2")]
    pub pool_name: String,
    /// Its name in the pool.
    #[prost(string, tag = "3")]
    pub device_name: String,
    /// Its names in CDI files.
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
    /// Which share of the device.
    #[prost(string, optional, tag = "5")]
    pub share_id: Option<String>,
}

/// The outcome for claims whose pods have ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UnprepareResponse {
    /// By uid.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, UnpreparedAnswer>,
}

/// The outcome for one claim.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UnpreparedAnswer {
    /// Why something is left.
    #[prost(string, tag = "1")]
    pub error: String,
}

/// The health of all devices. Versions v1 and v1alpha1 agree on it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthResponse {
    /// All of them, each time.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<DeviceHealth>,
}

/// A device by name.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeviceIdentifier {
    /// Its pool.
    #[prost(string, tag = "1")]
    pub pool_name: String,
    /// Its name in the pool.
    #[prost(string, tag = "2")]
    pub device_name: String,
}

/// The health of one device.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeviceHealth {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub device: Option<DeviceIdentifier>,
    /// A number of [`HealthStatus`].
    #[prost(enumeration = "HealthStatus", tag = "2")]
    pub health: i32,
    /// Seconds since 1970.
    #[prost(int64, tag = "3")]
    pub last_updated_time: i64,
    /// How long the kubelet trusts this, seconds.
    #[prost(int64, tag = "4")]
    pub health_check_timeout_seconds: i64,
    /// Why it is not healthy.
    #[prost(string, tag = "5")]
    pub message: String,
}

/// Whether a device works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum HealthStatus {
    /// Not known.
    Unknown = 0,
    /// It works.
    Healthy = 1,
    /// It does not.
    Unhealthy = 2,
}

/// The kubelet's list of the devices that containers of its node have (`podresources/v1`). Fields
/// that nobody here reads are left out.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListPodResourcesResponse {
    /// The pods.
    #[prost(message, repeated, tag = "1")]
    pub pod_resources: Vec<PodResources>,
}

/// A pod.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodResources {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Its containers.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

/// A container.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerResources {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its devices of device plugins.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    /// Its claims.
    #[prost(message, repeated, tag = "5")]
    pub dynamic_resources: Vec<DynamicResource>,
}

/// Devices of one resource that a container has.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerDevices {
    /// The resource's name in pods.
    #[prost(string, tag = "1")]
    pub resource_name: String,
    /// The names that the device plugin has given them.
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
}

/// A claim of a container.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DynamicResource {
    /// Its name.
    #[prost(string, tag = "2")]
    pub claim_name: String,
    /// The devices of the claim that the container has.
    #[prost(message, repeated, tag = "4")]
    pub claim_resources: Vec<ClaimResource>,
}

/// A device of a claim.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClaimResource {
    /// The driver that the device belongs to.
    #[prost(string, tag = "2")]
    pub driver_name: String,
}

/// A device plugin's description of itself (`deviceplugin/v1beta1`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegisterRequest {
    /// `v1beta1`.
    #[prost(string, tag = "1")]
    pub version: String,
    /// Name of its socket in the kubelet's folder.
    #[prost(string, tag = "2")]
    pub endpoint: String,
    /// The resource's name in pods, like `cgpu.io/gpu-8g`.
    #[prost(string, tag = "3")]
    pub resource_name: String,
}

/// All devices of a device plugin, each time.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PluginDevices {
    /// The devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<PluginDevice>,
}

/// A device of a device plugin.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PluginDevice {
    /// Its name, of at most 63 bytes.
    #[prost(string, tag = "1")]
    pub id: String,
    /// `Healthy` or `Unhealthy`.
    #[prost(string, tag = "2")]
    pub health: String,
}

/// Devices that the kubelet has chosen.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AllocateRequest {
    /// One for each container.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerRequest>,
}

/// Devices of a container.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerRequest {
    /// Their names.
    #[prost(string, repeated, tag = "1")]
    pub device_ids: Vec<String>,
}

/// The additions to each container.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AllocateResponse {
    /// One for each container.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerAnswer>,
}

/// The additions to a container. Fields that nobody here writes are left out.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerAnswer {
    /// Its devices in CDI files.
    #[prost(message, repeated, tag = "5")]
    pub cdi_devices: Vec<CdiDevice>,
}

/// A device in a CDI file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CdiDevice {
    /// Vendor, class and name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The question whether a service is well (`grpc.health.v1`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthQuestion {
    /// Its name, or nothing for all.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// Whether it is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthAnswer {
    /// 1: serving; 2: not serving.
    #[prost(int32, tag = "1")]
    pub status: i32,
}
