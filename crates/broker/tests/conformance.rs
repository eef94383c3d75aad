//! The conformance suite of the broker port, against memory and against every RabbitMQ that is named:
//! EVERWATCH_TEST_AMQP_URL (one), EVERWATCH_TEST_BROKERS ("4.0=amqp://...,4.3=amqp://...", optional).
#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

use everwatch_broker::conformance::{self, EXCHANGES, QUEUES};
use everwatch_broker::{MemoryBroker, RabbitBroker};
use futures::FutureExt;
use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::{Connection, ConnectionProperties};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

fn brokers() -> Vec<(String, String)> {
    let url = std::env::var("EVERWATCH_TEST_AMQP_URL")
        .unwrap_or_else(|_| panic!("EVERWATCH_TEST_AMQP_URL is not set: run the tests with ./tests/run"));
    let more = std::env::var("EVERWATCH_TEST_BROKERS").unwrap_or_default();
    let more = more.split(',').filter(|one| !one.trim().is_empty()).map(|one| {
        let (version, url) = one.trim().split_once('=').expect("EVERWATCH_TEST_BROKERS is version=url,...");
        (version.to_owned(), url.to_owned())
    });
    std::iter::once(("default".to_owned(), url)).chain(more).collect()
}

fn fresh_prefix() -> String {
    format!("test.{}.", uuid::Uuid::new_v4().simple())
}

async fn clean(url: &str, prefix: &str) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    for queue in QUEUES {
        let name = format!("{prefix}{queue}");
        channel.queue_delete(name.into(), QueueDeleteOptions::default()).await.unwrap();
    }
    for exchange in EXCHANGES {
        let name = format!("{prefix}{exchange}");
        channel.exchange_delete(name.into(), ExchangeDeleteOptions::default()).await.unwrap();
    }
    connection.close(200, "bye".into()).await.unwrap();
}

macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        mod memory {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    conformance::$name(&MemoryBroker::new(), "test.").await;
                }
            )*
        }
        mod rabbit {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    for (version, url) in brokers() {
                        let prefix = fresh_prefix();
                        let broker = RabbitBroker::new(&url, &prefix, Duration::from_secs(5)).unwrap();
                        let run = AssertUnwindSafe(conformance::$name(&broker, &prefix)).catch_unwind().await;
                        clean(&url, &prefix).await;
                        if let Err(broken) = run {
                            eprintln!("on RabbitMQ {version}:");
                            resume_unwind(broken);
                        }
                    }
                }
            )*
        }
    };
}

conformance! {
    redelivery_counts_up,
    prefetch_is_a_limit,
    many_messages_are_acknowledged_at_once,
    cancel_keeps_what_is_held,
    a_dropped_consumer_gives_back_what_was_not_read,
    requeue_goes_to_another,
    a_lost_session_gives_everything_back_in_order,
    a_lost_session_settles_nothing,
    an_exclusive_queue_tells_the_fate_of_its_session,
    a_publish_without_a_queue_is_unroutable,
    fanout_reaches_every_queue_and_may_have_none,
    a_direct_exchange_reaches_the_queues_of_its_key,
    declare_tells_existed_or_created,
    get_and_requeue_keep_order,
    headers_travel,
    depth_counts_messages_and_consumers,
    many_publishes_at_once_keep_their_order,
    a_higher_priority_is_served_first,
    a_lower_priority_is_served_last,
    a_cancelled_consumer_can_consume_again,
    refusals_leave_no_trace,
    only_an_idle_queue_is_deleted,
    a_single_active_queue_serves_one_consumer_at_a_time,
    a_cancel_makes_the_next_consumer_active,
    a_loss_makes_the_next_consumer_active,
    a_single_active_queue_is_one_forever,
}
