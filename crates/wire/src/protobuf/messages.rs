//! Small and rare messages, with derived readers. Fields that are not listed are skipped.

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TypeMeta {
    #[prost(string, tag = "2")]
    pub(super) kind: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListMeta {
    #[prost(string, tag = "2")]
    pub(super) resource_version: String,
    #[prost(string, tag = "3")]
    pub(super) r#continue: String,
    #[prost(int64, tag = "4")]
    pub(super) remaining_item_count: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchEvent {
    #[prost(string, tag = "1")]
    pub(super) r#type: String,
    #[prost(message, optional, tag = "2")]
    pub(super) object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RawExtension {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) raw: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StatusMessage {
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(message, optional, tag = "5")]
    details: Option<StatusDetails>,
    #[prost(int32, tag = "6")]
    code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusDetails {
    #[prost(int32, tag = "5")]
    retry_after_seconds: i32,
}

impl From<StatusMessage> for crate::Status {
    fn from(StatusMessage { message, reason, details, code }: StatusMessage) -> Self {
        Self::new(code, reason, message, details.unwrap_or_default().retry_after_seconds)
    }
}
