//! Which parts of a deployment use a pool: whether the pool can be deleted, and what a manager does when the work queue of the
//! pool has gone.

use crate::id::Pool;
use crate::wording::counted;
use thiserror::Error;

/// What a manager knows of the use of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Whether `manager.pools` of this manager lists the pool.
    pub configured: bool,
    /// Its living services.
    pub services: u64,
    /// Its observers that are not deleted.
    pub observers: u64,
    /// Those of them that are published: their messages should be in the queue.
    pub published: u64,
    /// Whether observers have ended whose messages may still be in the queue.
    pub releasing: bool,
}

/// Why a pool cannot be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InUse {
    #[error(
        "manager.pools lists pool {0}: remove it there on all managers, and restart them, before you delete the pool"
    )]
    Configured(Pool),
    #[error("pool {pool} has {}: stop all its services before you delete the pool", counted(*count, "service"))]
    Services { pool: Pool, count: u64 },
    #[error("pool {pool} has {}: delete or move all its observers before you delete the pool", counted(*count, "observer"))]
    Observers { pool: Pool, count: u64 },
    #[error(
        "observers of pool {0} have just ended, and their messages may still be in its work queue; retry in a minute"
    )]
    Releasing(Pool),
    #[error(
        "the work queue of pool {pool} still has {} and {}; retry when it is empty and all services of the pool have stopped",
        counted(ready, "message"),
        counted(consumers, "consumer")
    )]
    Queue { pool: Pool, ready: u32, consumers: u32 },
}

impl PoolUse {
    /// Checks that nothing of the deployment uses the pool.
    ///
    /// # Errors
    /// The first use, and how to end it.
    pub fn check_unused(&self, pool: &Pool) -> Result<(), InUse> {
        let pool = pool.clone();
        match *self {
            Self { configured: true, .. } => Err(InUse::Configured(pool)),
            Self { services: count @ 1.., .. } => Err(InUse::Services { pool, count }),
            Self { observers: count @ 1.., .. } => Err(InUse::Observers { pool, count }),
            Self { releasing: true, .. } => Err(InUse::Releasing(pool)),
            Self { .. } => Ok(()),
        }
    }

    /// What to do when the work queue has gone, for example with the data of the broker, or because another manager has
    /// deleted the pool.
    #[must_use]
    pub fn on_missing_queue(&self) -> MissingQueue {
        // The broker user of the services may not declare the queue. A pool in which nothing was published and no service
        // lives may never have had one, and the first declaration decides whether the pool is single.
        if self.configured || self.services > 0 || self.published > 0 {
            MissingQueue::Declare
        } else if self.observers > 0 || self.releasing {
            MissingQueue::Keep
        } else {
            MissingQueue::Forget
        }
    }
}

/// What a manager does about a pool without a work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingQueue {
    /// Declare the queue again.
    Declare,
    /// Watch the pool: its first publish declares the queue.
    Keep,
    /// Stop watching the pool, which nothing uses.
    Forget,
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNUSED: PoolUse =
        PoolUse { configured: false, services: 0, observers: 0, published: 0, releasing: false };

    #[test]
    fn a_pool_in_use_is_kept_and_the_error_says_how_to_end_the_use() {
        let all = PoolUse { configured: true, services: 2, observers: 1, published: 1, releasing: true };
        let check = |it: PoolUse| it.check_unused(&Pool::new("a").unwrap()).map_err(|it| it.to_string());
        let refused = |text: &str| Err(text.to_owned());
        assert_eq!(
            check(all),
            refused(
                "manager.pools lists pool a: remove it there on all managers, and restart them, before you delete the pool"
            )
        );
        let rest = PoolUse { configured: false, ..all };
        assert_eq!(
            check(rest),
            refused("pool a has 2 services: stop all its services before you delete the pool")
        );
        let rest = PoolUse { services: 0, ..rest };
        assert_eq!(
            check(rest),
            refused("pool a has 1 observer: delete or move all its observers before you delete the pool")
        );
        let rest = PoolUse { observers: 0, published: 0, ..rest };
        assert_eq!(
            check(rest),
            refused(
                "observers of pool a have just ended, and their messages may still be in its work queue; retry in a minute"
            )
        );
        assert_eq!(check(UNUSED), Ok(()));
        let queue = InUse::Queue { pool: Pool::new("a").unwrap(), ready: 1, consumers: 0 };
        assert!(queue.to_string().contains("has 1 message and 0 consumers"), "{queue}");
    }

    #[test]
    fn a_queue_that_something_needs_is_declared_again() {
        let after = |it: PoolUse| it.on_missing_queue();
        assert_eq!(after(UNUSED), MissingQueue::Forget);
        assert_eq!(after(PoolUse { configured: true, ..UNUSED }), MissingQueue::Declare);
        assert_eq!(after(PoolUse { services: 1, ..UNUSED }), MissingQueue::Declare);
        assert_eq!(after(PoolUse { observers: 3, published: 1, ..UNUSED }), MissingQueue::Declare);
        assert_eq!(after(PoolUse { observers: 3, ..UNUSED }), MissingQueue::Keep, "they wait for a slot");
        assert_eq!(after(PoolUse { releasing: true, ..UNUSED }), MissingQueue::Keep);
    }
}
