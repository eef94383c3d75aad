//! Services for the tests of services.

use crate::clock::Timestamp;
use crate::id::{Kind, Name, Pool, ServiceId};
use crate::record::service::ServiceRow;
use crate::wire::heartbeat::{Heartbeat, Intent};
use crate::wire::message::VERSION;
use crate::wire::report::{KindInfo, Registration};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// A service that has just registered.
pub(crate) fn service(pool: &str, capacity: u32, kinds: &[&str]) -> ServiceRow {
    let info = |kind: &&str| KindInfo { name: Kind::new(kind).unwrap(), schema: Arc::default() };
    let registration = Registration {
        name: Name::new("s").unwrap(),
        pool: Pool::new(pool).unwrap(),
        capacity,
        kinds: kinds.iter().map(info).collect(),
        version: String::new(),
        weight_max: 1,
        message_version: VERSION,
        host: String::new(),
        labels: BTreeMap::new(),
        pool_single: false,
        predecessor: None,
    };
    ServiceRow::registered(ServiceId(Uuid::from_u128(1)), registration, Timestamp(0), Timestamp(0))
}

/// A service whose latest heartbeat says that it holds this many observers.
pub(crate) fn holding(mut service: ServiceRow, held: u32) -> ServiceRow {
    service.heartbeat = Some(Heartbeat {
        service: service.id,
        seq: 1,
        state: Intent::Active,
        capacity: service.registration.capacity,
        held,
        loop_lag_ms: 0,
        rss_bytes: 0,
        sent_at: None,
        stalled: Vec::new(),
    });
    service
}
