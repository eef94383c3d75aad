//! What a worker does with its broker, read from its traffic: which messages it holds, what it acknowledges, and which
//! rules of the connection it breaks.

use super::frames::{Frame, Said};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The most messages that one channel may hold.
const CHANNEL_MAX: usize = 1000;
/// The most events that are kept.
const EVENTS_MAX: usize = 200_000;

/// Who sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Worker,
    Broker,
}

/// Something that happened, in the order in which the worker saw or did it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// The worker consumes from this queue.
    Consumes(String),
    /// The worker published to an exchange with this key.
    Published {
        exchange: String,
        key: String,
    },
    /// The broker confirmed a publish on a channel.
    Confirmed {
        channel: (u64, u16),
    },
    Acked(String),
    GivenBack(String),
}

/// The traffic of one worker. A connection has a number.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    channels: BTreeMap<(u64, u16), Channel>,
    tags: BTreeSet<String>,
    pub(super) events: Vec<Event>,
    /// The most messages of each queue that the worker held at once.
    most_held: HashMap<String, usize>,
    /// The broken rules, each once.
    pub(super) breaches: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Channel {
    prefetch: u16,
    confirms: bool,
    consumers: HashMap<String, String>,
    /// The queue of each message that is not settled.
    held: BTreeMap<u64, String>,
    /// The destination of the message whose properties come next.
    publishing: Option<String>,
}

impl Ledger {
    /// Records a frame.
    pub(super) fn on_frame(&mut self, link: u64, side: Side, frame: &Frame) {
        let key = (link, frame.channel);
        match (side, &frame.said) {
            (_, Said::ChannelClosed) => drop(self.channels.remove(&key)),
            (Side::Worker, said) => self.on_worker(key, said),
            (Side::Broker, Said::Deliver { tag, delivery }) => self.on_delivery(key, tag, *delivery),
            (Side::Broker, Said::Ack { .. }) => self.add(Event::Confirmed { channel: key }),
            (Side::Broker, _) => {}
        }
    }

    /// A connection has ended: the broker takes its messages back.
    pub(super) fn on_end(&mut self, link: u64) {
        self.channels.retain(|(of, _), _| *of != link);
    }

    /// A channel that consumes this queue, with its connection.
    pub(super) fn consuming(&self, queue: &str) -> Option<(u64, u16)> {
        let consumes = |channel: &Channel| channel.consumers.values().any(|of| of == queue);
        self.channels.iter().find(|(_, channel)| consumes(channel)).map(|(key, _)| *key)
    }

    /// The number of messages of a queue that the worker holds.
    pub(super) fn held(&self, queue: &str) -> usize {
        self.channels.values().flat_map(|channel| channel.held.values()).filter(|of| *of == queue).count()
    }

    pub(super) fn most_held(&self, queue: &str) -> usize {
        self.most_held.get(queue).copied().unwrap_or_default()
    }

    /// The number of messages of a queue that the worker acknowledged.
    pub(super) fn acked(&self, queue: &str) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Acked(of) if of == queue)).count()
    }

    /// The number of messages of a queue that the worker gave back.
    pub(super) fn given_back(&self, queue: &str) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::GivenBack(of) if of == queue)).count()
    }

    fn add(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(event);
        }
    }

    fn breach(&mut self, text: String) {
        self.breaches.insert(text);
    }

    fn on_worker(&mut self, key: (u64, u16), said: &Said) {
        match said {
            Said::Qos { prefetch } => self.channel(key).prefetch = *prefetch,
            Said::ConfirmSelect => self.channel(key).confirms = true,
            Said::Consume { queue, tag, no_ack } => self.on_consume(key, queue, tag, *no_ack),
            Said::Get { queue } => self.breach(format!("it takes messages of {queue} with basic.get")),
            Said::Publish { exchange, key: to, mandatory } => {
                let to_queue = exchange.is_empty() || exchange.ends_with("reports");
                let place = if to_queue { to } else { exchange };
                if exchange.is_empty() {
                    self.breach(format!(
                        "it publishes to {place} through the default exchange, to which the user of a service may not \
                         publish: use the exchange `reports`"
                    ));
                }
                if to_queue && !mandatory {
                    self.breach(format!(
                        "it publishes to {place} without the flag `mandatory`: a message is lost if the queue is missing"
                    ));
                }
                if !self.channel(key).confirms {
                    self.breach(format!("it publishes to {place} on a channel without confirms"));
                }
                self.channel(key).publishing = Some(place.clone());
                self.add(Event::Published { exchange: exchange.clone(), key: to.clone() });
            }
            Said::Properties { persistent } => {
                let published = self.channel(key).publishing.take();
                if let Some(place) = published.filter(|_| !persistent) {
                    self.breach(format!("it publishes messages to {place} that are not persistent"));
                }
            }
            Said::Ack { delivery, multiple } => {
                for queue in self.settle(key, *delivery, *multiple) {
                    self.add(Event::Acked(queue));
                }
            }
            Said::Reject { delivery, multiple, requeue } => {
                for queue in self.settle(key, *delivery, *multiple) {
                    if !requeue {
                        self.breach(format!("it drops a message of {queue}: it must give it back"));
                    }
                    self.add(Event::GivenBack(queue));
                }
            }
            Said::Deliver { .. } | Said::ChannelClosed | Said::Other => {}
        }
    }

    fn on_consume(&mut self, key: (u64, u16), queue: &str, tag: &str, no_ack: bool) {
        if tag.is_empty() {
            self.breach(format!("it consumes {queue} without a consumer tag of its own"));
        } else if !self.tags.insert(tag.to_owned()) {
            self.breach(format!("it uses the consumer tag {tag} twice"));
        }
        if no_ack {
            self.breach(format!("it consumes {queue} without acknowledgements"));
        }
        let prefetch = self.channel(key).prefetch;
        if queue.contains("work.") && !(1..=1000).contains(&prefetch) {
            self.breach(format!(
                "it consumes {queue} with a prefetch of {prefetch}: it must be from 1 to 1000"
            ));
        }
        self.channel(key).consumers.insert(tag.to_owned(), queue.to_owned());
        self.add(Event::Consumes(queue.to_owned()));
    }

    fn on_delivery(&mut self, key: (u64, u16), tag: &str, delivery: u64) {
        let channel = self.channel(key);
        let queue = channel.consumers.get(tag).cloned().unwrap_or_default();
        channel.held.insert(delivery, queue.clone());
        if channel.held.len() > CHANNEL_MAX {
            self.breach(format!("it holds more than {CHANNEL_MAX} messages on one channel"));
        }
        let held = self.held(&queue);
        let most = self.most_held.entry(queue).or_default();
        *most = held.max(*most);
    }

    /// Removes the settled messages and returns their queues.
    fn settle(&mut self, key: (u64, u16), delivery: u64, multiple: bool) -> Vec<String> {
        let held = &mut self.channel(key).held;
        if !multiple {
            return held.remove(&delivery).into_iter().collect();
        }
        let upto = if delivery == 0 { u64::MAX } else { delivery };
        let tags: Vec<u64> = held.range(..=upto).map(|(tag, _)| *tag).collect();
        tags.into_iter().filter_map(|tag| held.remove(&tag)).collect()
    }

    fn channel(&mut self, key: (u64, u16)) -> &mut Channel {
        self.channels.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ledger: &mut Ledger, side: Side, said: Said) {
        ledger.on_frame(1, side, &Frame { channel: 2, said, length: 0 });
    }
    fn consume(tag: &str) -> Said {
        Said::Consume { queue: "p.work.x".to_owned(), tag: tag.to_owned(), no_ack: false }
    }

    #[test]
    fn held_messages_are_counted_until_they_are_settled_or_the_connection_ends() {
        let mut ledger = Ledger::default();
        told(&mut ledger, Side::Worker, Said::Qos { prefetch: 9 });
        told(&mut ledger, Side::Worker, consume("a"));
        for delivery in 1..=4 {
            told(&mut ledger, Side::Broker, Said::Deliver { tag: "a".to_owned(), delivery });
        }
        told(&mut ledger, Side::Worker, Said::Ack { delivery: 2, multiple: true });
        told(&mut ledger, Side::Worker, Said::Reject { delivery: 3, multiple: false, requeue: true });
        let (held, most) = (ledger.held("p.work.x"), ledger.most_held("p.work.x"));
        assert_eq!((held, most, ledger.acked("p.work.x"), ledger.given_back("p.work.x")), (1, 4, 2, 1));
        ledger.on_end(1);
        assert_eq!((ledger.held("p.work.x"), ledger.breaches.len()), (0, 0));
    }

    #[test]
    fn broken_rules_of_a_connection_are_named_once() {
        let mut ledger = Ledger::default();
        let publish = |exchange: &str| Said::Publish {
            exchange: exchange.to_owned(),
            key: "q".to_owned(),
            mandatory: false,
        };
        for said in [
            consume("a"),
            consume("a"),
            Said::Get { queue: "q".to_owned() },
            publish("p.reports"),
            Said::Properties { persistent: false },
            publish(""),
        ] {
            told(&mut ledger, Side::Worker, said);
        }
        let words = [
            "prefetch of 0",
            "tag a twice",
            "basic.get",
            "default exchange",
            "mandatory",
            "confirms",
            "not persistent",
        ];
        for word in words {
            assert!(ledger.breaches.iter().any(|breach| breach.contains(word)), "{word}: {ledger:?}");
        }
        assert_eq!(ledger.breaches.len(), words.len());
    }
}
