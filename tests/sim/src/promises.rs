//! What managers have confirmed to operators: for each service, the last confirmed order that no other order
//! can have overtaken.

use crate::history::Order;
use everwatch_core::capacity::maintenance::Orders;

/// An order for one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServiceOrder {
    Cordon(bool),
    /// A drain. It also cordons the service, and it ends by itself.
    Drain,
    Resize(Option<u32>),
}

impl Order {
    /// The service number and the order, if the order is for one service.
    pub(crate) fn of_service(self) -> Option<(usize, ServiceOrder)> {
        match self {
            Self::Cordon(service) => Some((service, ServiceOrder::Cordon(true))),
            Self::Uncordon(service) => Some((service, ServiceOrder::Cordon(false))),
            Self::Drain { service, .. } => Some((service, ServiceOrder::Drain)),
            Self::Resize { service, capacity } => Some((service, ServiceOrder::Resize(capacity))),
            Self::Rebalance | Self::SafeMode { .. } => None,
        }
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) done: bool,
    /// Whether the request was sent only once. A manager may execute a repeated request at any later time.
    pub(crate) sent_once: bool,
}

/// One value that orders change.
#[derive(Debug, Clone, Copy)]
struct Promised<T> {
    /// Requests that may still be carried out.
    open: u32,
    /// Whether two requests were in progress at the same time, so that it is unknown which one counts last.
    muddled: bool,
    value: Option<T>,
}

impl<T> Default for Promised<T> {
    fn default() -> Self {
        Self { open: 0, muddled: false, value: None }
    }
}

impl<T> Promised<T> {
    fn on_sent(&mut self) {
        self.muddled |= self.open > 0;
        self.open += 1;
    }
    fn on_answered(&mut self, value: Option<T>, answered: Answered) {
        if self.muddled || !answered.sent_once {
            self.value = None;
        } else if answered.done {
            self.value = value;
        }
        self.open -= u32::from(answered.sent_once);
        self.muddled &= self.open > 0;
    }
}

/// What is promised for one service.
#[derive(Debug, Clone, Default)]
pub(crate) struct PromisedOrders {
    cordoned: Promised<bool>,
    capacity: Promised<Option<u32>>,
}

impl PromisedOrders {
    pub(crate) fn on_sent(&mut self, order: ServiceOrder) {
        match order {
            ServiceOrder::Cordon(_) | ServiceOrder::Drain => self.cordoned.on_sent(),
            ServiceOrder::Resize(_) => self.capacity.on_sent(),
        }
    }
    pub(crate) fn on_answered(&mut self, order: ServiceOrder, answered: Answered) {
        match order {
            ServiceOrder::Cordon(cordoned) => self.cordoned.on_answered(Some(cordoned), answered),
            ServiceOrder::Drain => self.cordoned.on_answered(None, answered),
            ServiceOrder::Resize(capacity) => self.capacity.on_answered(Some(capacity), answered),
        }
    }
    /// Forgets the confirmed orders, because an older database content was restored.
    pub(crate) fn forget(&mut self) {
        (self.cordoned.value, self.capacity.value) = (None, None);
        (self.cordoned.muddled, self.capacity.muddled) = (self.cordoned.open > 0, self.capacity.open > 0);
    }
    /// The confirmed order that the current orders contradict, if any.
    pub(crate) fn broken_by(&self, orders: &Orders) -> Option<String> {
        if let Some(cordoned) = self.cordoned.value.filter(|it| *it != orders.cordoned) {
            return Some(format!("cordoned: {cordoned}"));
        }
        let capacity = self.capacity.value.filter(|it| *it != orders.capacity)?;
        Some(format!("capacity: {capacity:?}"))
    }
}
