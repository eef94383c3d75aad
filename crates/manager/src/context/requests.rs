//! What HTTP requests share: their limits, the creates that wait for a transaction, the schemas of the kinds, and the
//! newest events.

use crate::context::creates::{Create, Creates};
use crate::context::request_limits::RequestLimits;
use crate::context::schemas::Schemas;
use crate::events::recent::RecentEvents;
use crate::events::timeline::SharedTimeline;
use tokio::sync::mpsc;

pub(crate) struct Requests {
    pub(crate) limits: RequestLimits,
    pub(crate) creates: Creates,
    pub(crate) schemas: Schemas,
    pub(crate) recent: RecentEvents,
    pub(crate) timeline: SharedTimeline,
}

impl Requests {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Create>) {
        let (creates, creates_in) = Creates::new();
        let (limits, schemas, recent) =
            (RequestLimits::default(), Schemas::default(), RecentEvents::default());
        (Self { limits, creates, schemas, recent, timeline: SharedTimeline::default() }, creates_in)
    }
}
