//! The parts of a registration beside the name and capacity of the service.

use crate::id::{Kind, ServiceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// A kind of observer that a service can run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KindInfo {
    pub name: Kind,
    // Shared, because managers copy their service data every second.
    /// JSON schema of its spec.
    #[serde(default, with = "shared_schema", skip_serializing_if = "is_no_schema")]
    #[schemars(with = "Value")]
    pub schema: Arc<Value>,
}

fn is_no_schema(schema: &Arc<Value>) -> bool {
    schema.is_null()
}

mod shared_schema {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use serde_json::Value;
    use std::sync::Arc;

    pub(super) fn serialize<S: Serializer>(schema: &Arc<Value>, to: S) -> Result<S::Ok, S::Error> {
        schema.as_ref().serialize(to)
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Value>, D::Error> {
        Value::deserialize(from).map(Arc::new)
    }
}

/// An earlier incarnation in the same process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Predecessor {
    pub service: ServiceId,
    pub ended: String,
}
