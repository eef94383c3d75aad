//! Takes from a queue what arrives at about the same time, so that one transaction serves it.

use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, timeout_at};

/// `first` and what arrives within `time` after it: at most `most` items.
pub(super) async fn gather<T>(first: T, queue: &mut Receiver<T>, most: usize, time: Duration) -> Vec<T> {
    let mut batch = vec![first];
    let until = Instant::now() + time;
    while batch.len() < most
        && let Ok(Some(item)) = timeout_at(until, queue.recv()).await
    {
        batch.push(item);
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_batch_ends_with_its_size_its_time_or_its_queue() {
        let (sender, mut queue) = mpsc::channel(9);
        for number in 1..=4 {
            sender.send(number).await.unwrap();
        }
        let hour = Duration::from_secs(3600);
        assert_eq!(gather(0, &mut queue, 3, hour).await, [0, 1, 2], "the size");
        assert_eq!(gather(0, &mut queue, 9, Duration::ZERO).await, [0, 3, 4], "the time");
        sender.send(5).await.unwrap();
        drop(sender);
        assert_eq!(gather(0, &mut queue, 9, hour).await, [0, 5], "the queue");
    }
}
