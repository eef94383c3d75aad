//! The queues and exchanges of a session. Managers declare those that all share; a service declares what is missing.

use super::Incarnation;
use everwatch_broker::{BrokerError, Declared, QueueKind, Session, Target, Topology};
use std::time::Duration;

/// Pauses between two looks for a queue or an exchange that only managers may declare.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// What a service declares.
enum Declaration<'a> {
    /// A queue that several services share.
    Shared(&'a str, &'a QueueKind),
    /// The command queue of this session.
    Commands(&'a str),
    Exchange(&'a Target),
}

impl Declaration<'_> {
    async fn make(&self, session: &dyn Session) -> Result<Declared, BrokerError> {
        match self {
            Self::Shared(queue, kind) => session.ensure(queue, kind).await,
            Self::Commands(queue) => session.declare(queue, &QueueKind::Exclusive).await,
            Self::Exchange(target) => session.declare_exchange(target).await.map(|()| Declared::Existed),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Shared(queue, _) | Self::Commands(queue) => queue,
            Self::Exchange(target) => target.name(),
        }
    }
}

/// Makes sure that all of them exist; returns whether this service created its work queue.
pub(super) async fn declare(me: &Incarnation, topology: &Topology) -> Result<bool, BrokerError> {
    let only_managers: Vec<String> =
        (1..topology.state_queues()).map(|index| topology.state_queue(index)).collect();
    for (queue, kind) in topology.durable_queues() {
        if only_managers.contains(&queue) {
            until_managers_read(me, &queue).await?;
        }
        until_permitted(me, &Declaration::Shared(&queue, &kind)).await?;
    }
    for exchange in topology.exchanges() {
        until_permitted(me, &Declaration::Exchange(&exchange)).await?;
    }
    let pool = &me.settings.pool;
    let commands = topology.commands_of(pool, me.id);
    until_permitted(me, &Declaration::Commands(&commands)).await?;
    me.session.bind(&commands, &[topology.commands(), topology.commands_to(pool)]).await?;
    let kept = QueueKind::Durable { max_length: None };
    let kind = if me.settings.pool_single { QueueKind::SingleActive } else { kept };
    let declared = until_permitted(me, &Declaration::Shared(&topology.work(pool), &kind)).await?;
    Ok(declared == Declared::Created)
}

/// Waits as long as something is missing that the user of this service may not declare.
///
/// The obvious reaction to a refusal is to end. But then services that start before the first manager would have to be
/// started again.
async fn until_permitted(me: &Incarnation, declaration: &Declaration<'_>) -> Result<Declared, BrokerError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let refusal = match declaration.make(me.session.as_ref()).await {
            Err(BrokerError::Forbidden(refusal)) => refusal,
            done => return done,
        };
        let (name, pool) = (declaration.name(), &me.settings.pool);
        tracing::error!(
            name,
            refusal,
            "the broker user of this service may not declare what is missing on the broker; start a manager that knows \
             pool {pool} (`everwatch pool create {pool}`, or manager.pools), or give it the permissions that \
             `everwatch broker permissions --pool {pool}` prints; waiting"
        );
        pause = rest(me, pause).await?;
    }
}

/// Waits until managers have declared a state queue beyond the first.
///
/// A service does not declare the queue itself. If the managers are configured with fewer queues, no manager reads it:
/// managers would miss the reports that observers have ended, and would start those observers again. So only managers
/// create these queues, and a service takes no observers until all of them exist.
async fn until_managers_read(me: &Incarnation, queue: &str) -> Result<(), BrokerError> {
    let mut pause = FIRST_PAUSE;
    loop {
        match me.session.depth(queue).await {
            Err(BrokerError::NoQueue(_)) => {}
            found => return found.map(drop),
        }
        let number = me.settings.state_queues;
        tracing::error!(
            queue,
            "no manager has declared this state queue; set broker.state_queues of all managers to at least {number} and \
             restart them, or reduce it here; waiting"
        );
        pause = rest(me, pause).await?;
    }
}

/// Waits; returns the next pause.
async fn rest(me: &Incarnation, pause: Duration) -> Result<Duration, BrokerError> {
    tokio::select! {
        () = tokio::time::sleep(pause) => Ok((pause * 2).min(LONGEST_PAUSE)),
        () = me.handle.stop.cancelled() => Err(BrokerError::Lost("the service stops".to_owned())),
        reason = me.session.lost() => Err(BrokerError::Lost(reason)),
    }
}
