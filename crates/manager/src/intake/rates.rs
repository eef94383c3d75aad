//! The rates queue: requests of services for permits. A grant is in the database before its answer is sent; if the answer
//! is lost, so are its permits, and the service asks again.

use crate::context::Manager;
use crate::metric;
use crate::outgoing::commands::order_later;
use crate::queue_reader::{ack_all, next, next_ready, open};
use everwatch_broker::{Delivery, Session};
use everwatch_core::wire::command::Command;
use everwatch_core::wire::message::decode;
use everwatch_core::wire::permits::{PermitAnswers, PermitRequest, RatesMessage};
use everwatch_store::StoreError;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// The most requests that are granted in one transaction.
const PREFETCH: u16 = 50;

pub(crate) async fn run(manager: Arc<Manager>, session: Arc<dyn Session>, over: CancellationToken) {
    let Some(mut consumer) = open(session.as_ref(), manager.link.topology.rates(), PREFETCH).await else {
        return;
    };
    while let Some(first) = next(consumer.as_mut(), &over).await {
        let mut deliveries = vec![first];
        while deliveries.len() < usize::from(PREFETCH)
            && let Some(delivery) = next_ready(consumer.as_mut())
        {
            deliveries.push(delivery);
        }
        // Acknowledged first: a request that came again after its grant would take its permits twice.
        let receipts: Vec<_> = deliveries.iter().map(|delivery| delivery.receipt).collect();
        ack_all(session.as_ref(), &receipts).await;
        let requests: Vec<PermitRequest> = deliveries.iter().filter_map(read).collect();
        // While the broker takes no answers, a grant would be lost.
        if requests.is_empty() || session.is_blocked() {
            continue;
        }
        if let Err(error) = grant(&manager, &requests).await {
            debug!(%error, "permits are not granted; their services ask again");
        }
    }
}

fn read(delivery: &Delivery) -> Option<PermitRequest> {
    match decode::<RatesMessage>(&delivery.body) {
        Ok(RatesMessage::Acquire(request)) => Some(request),
        Err(unreadable) => {
            metrics::counter!(metric::UNREADABLE, "queue" => "rates").increment(1);
            debug!(why = %unreadable, "an unreadable request for permits is dropped");
            None
        }
    }
}

async fn grant(manager: &Arc<Manager>, requests: &[PermitRequest]) -> Result<(), StoreError> {
    let answers = manager.records.store.grant_permits(requests).await?;
    for (request, answers) in requests.iter().zip(answers) {
        count(request, &answers);
        order_later(manager, request.service, Command::Permits(answers));
    }
    Ok(())
}

fn count(request: &PermitRequest, answers: &PermitAnswers) {
    for granted in &answers.granted {
        let asks = request.asks.iter().filter(|ask| ask.turn == granted.turn);
        for (key, cost) in asks.flat_map(|ask| &ask.permits) {
            let permits = u64::from(*cost) * u64::from(granted.count);
            metrics::counter!(metric::PERMITS_GRANTED, "rate" => key.to_string()).increment(permits);
        }
    }
}
