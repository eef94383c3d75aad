//! Operators: they cordon, drain, resize, rebalance and move through some manager, which keeps their orders
//! by the services' names and sees that they are followed; mirrors `fleet` and `rebalance` of the manager.

use crate::database::Access;
use crate::users::observer_name;
use crate::world::World;
use everwatch_core::clock::Timestamp;
use everwatch_core::fleet::{Drain, Orders, plan_fleet};
use everwatch_core::id::ServiceId;
use everwatch_core::message::{Cause, Command, HandOver, Terms};
use everwatch_core::rebalance::{PoolPlan, Share, plan_pools};
use everwatch_core::service::{Ended, ServiceRow};
use std::rc::Rc;
use std::time::Duration;

const LIMITED: Duration = Duration::from_secs(10);
const SETTLES: Duration = Duration::from_secs(15);
const RESTS: Duration = Duration::from_secs(2);
const RETURNS_WITHIN: Duration = Duration::from_secs(300);
/// How late a command may come.
const LATE: u64 = 8000;

/// What an operator wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Cordon(usize),
    Uncordon(usize),
    Drain {
        service: usize,
        per_second: u32,
        within: Option<u64>,
        force: bool,
    },
    Resize {
        service: usize,
        capacity: Option<u32>,
    },
    Rebalance {
        moves: u32,
    },
    /// One observer, to whoever has room next.
    Move(usize),
}

type Change = Rc<dyn Fn(&mut Orders, Timestamp) -> bool>;

impl World {
    pub(crate) fn operator_asks(&mut self, order: Order) {
        let serving: Vec<usize> = (0..self.managers.len()).filter(|m| self.manager_serves(*m)).collect();
        if serving.is_empty() {
            return;
        }
        let chosen = self.roll(0, serving.len() as u64 - 1);
        let (m, latency) = (serving[usize::try_from(chosen).unwrap()], self.roll(1, 20));
        self.after(latency, self.host_of(m), move |world| world.serve_order(m, order));
    }

    fn serve_order(&mut self, m: usize, order: Order) {
        match order {
            Order::Cordon(s) => self.change_orders(m, s, Rc::new(Orders::cordon)),
            Order::Uncordon(s) => self.change_orders(m, s, Rc::new(Orders::uncordon)),
            Order::Resize { service, capacity } => {
                self.change_orders(m, service, Rc::new(move |orders, now| orders.resize(capacity, now)));
            }
            Order::Drain { service, per_second, within, force } => {
                let drain = move |orders: &mut Orders, asked_at: Timestamp| {
                    let until = within.map(|within| asked_at.plus(Duration::from_millis(within)));
                    orders.drain(Drain { asked_at, of: 0, per_second, until, force })
                };
                self.change_orders(m, service, Rc::new(drain));
            }
            Order::Rebalance { moves } => self.rebalance(m, moves),
            Order::Move(observer) => self.move_one(m, observer),
        }
    }

    /// Changes the orders of a name and tells its living services.
    fn change_orders(&mut self, m: usize, s: usize, change: Change) {
        let (host, name) = (self.host_of(m), self.services[s].setup.name.clone());
        let key = name.to_string();
        let read = move |world: &mut Self| world.db.orders.get(&key).cloned();
        self.query(host, Access::Read, read, move |world, found| {
            let Some(before) = found else { return };
            let mut orders = before.clone().unwrap_or_default();
            if !change(&mut orders, world.manager_now(m)) {
                return;
            }
            let (terms, key) = (orders.terms(), name.to_string());
            let write = move |world: &mut Self| world.db_order(key, (before, orders));
            world.query(host, Access::Write, write, move |world, written| match written {
                None => {}
                Some(None) => world.change_orders(m, s, change),
                Some(Some(living)) => {
                    for service in living.into_iter().filter(|it| it.birth.name == name) {
                        world.order(m, &Command::Terms { service: service.id, terms });
                    }
                }
            });
        });
    }

    /// Writes orders where these stood; answers the living services.
    fn db_order(
        &mut self,
        name: String,
        (before, after): (Option<Orders>, Orders),
    ) -> Option<Vec<ServiceRow>> {
        if self.db.orders.get(&name) != before.as_ref() {
            if self.rules.swaps_orders() {
                return None;
            }
            self.check.fail("orders", format!("the orders for {name} are taken back by nobody's word"));
        }
        self.tell(|_| format!("orders for {name}: {after:?}"));
        self.db.orders.insert(name, after);
        Some(self.db.living())
    }

    /// Says it to one service: it may be lost, come twice or late.
    fn order(&mut self, m: usize, command: &Command) {
        match self.roll(0, 9) {
            0 if !self.check.healthy => return,
            1 => self.mention(m, None, command),
            2 => {
                let late = self.roll(1, LATE);
                let command = command.clone();
                self.after(late, self.host_of(m), move |world| world.mention(m, None, &command));
            }
            _ => {}
        }
        self.mention(m, None, command);
    }

    /// Tells again what is not followed, and carries drains on.
    pub(crate) fn look_at_fleet(&mut self, m: usize, then: impl FnOnce(&mut Self, Option<()>) + 'static) {
        if self.mouth(m).is_none() {
            return then(self, Some(()));
        }
        let known = |world: &mut Self| (world.db.orders.clone(), world.db.living());
        self.query(self.host_of(m), Access::Read, known, move |world, known| {
            let Some((book, services)) = known else { return then(world, None) };
            let now = world.manager_now(m);
            let mut plan = plan_fleet(&services, &book, now);
            world.rules.tells(&mut plan, &services);
            for (service, terms) in plan.terms {
                world.order(m, &Command::Terms { service, terms });
            }
            for hand_over in plan.hand_over {
                world.order(m, &Command::HandOver(hand_over));
            }
            for name in plan.drained {
                let service = world.services.iter().position(|it| it.setup.name.as_str() == name).unwrap();
                world.change_orders(m, service, Rc::new(Orders::drained));
            }
            then(world, Some(()));
        });
    }

    fn rebalance(&mut self, m: usize, moves: u32) {
        let host = self.host_of(m);
        self.query(
            host,
            Access::Read,
            |world| world.db.living(),
            move |world, services| {
                let plans = plan_pools(&services.unwrap_or_default(), moves);
                let Some(plan) = plans.into_iter().next() else { return };
                let now = world.manager_now(m);
                let claim = move |world: &mut Self| {
                    let free = world.db.rebalanced_until.is_none_or(|until| until <= now);
                    if free {
                        world.db.rebalanced_until = Some(now.plus(SETTLES));
                    }
                    free
                };
                world.query(host, Access::Write, claim, move |world, claimed| {
                    if claimed == Some(true) {
                        world.begin_rebalance(m, plan);
                    }
                });
            },
        );
    }

    fn begin_rebalance(&mut self, m: usize, plan: PoolPlan) {
        for Share { load, target } in plan.shares {
            let (service, down_to, cause) = (load.id, Some(target), Cause::Rebalance);
            self.order(
                m,
                &Command::HandOver(HandOver { service, ids: Vec::new(), down_to, rest: LIMITED, cause }),
            );
        }
    }

    fn move_one(&mut self, m: usize, observer: usize) {
        let find = move |world: &mut Self| {
            let name = observer_name(observer);
            world.db.rows.values().find(|row| row.wanted.name == name).cloned()
        };
        self.query(self.host_of(m), Access::Read, find, move |world, row| {
            let Some(Some(row)) = row else { return };
            if let Ok(Some(service)) = row.leaves() {
                let ids = vec![row.id];
                let asked = HandOver { service, ids, down_to: None, rest: RESTS, cause: Cause::Move };
                world.order(m, &Command::HandOver(asked));
            }
        });
    }

    /// What belongs to the name of a newborn, and whether one of that name said goodbye lately.
    pub(crate) fn welcome_of(&self, service: ServiceId) -> (Option<Terms>, bool) {
        let Some(born) = self.db.services.get(&service) else { return (None, false) };
        let name = &born.birth.name;
        let gone = |it: &ServiceRow| {
            let lately = |at: Timestamp| born.born_at.since(at) <= RETURNS_WITHIN;
            it.end.is_some_and(|end| end.how == Ended::Gone && lately(end.at))
        };
        let mut same = self.db.services.values().filter(|it| it.id != service && it.birth.name == *name);
        (self.db.orders.get(name.as_str()).map(Orders::terms), same.any(gone))
    }

    /// All may take what they are set up for, and nothing stands against it.
    pub(crate) fn clear_orders(&mut self) {
        self.tell(|_| "all orders are taken back".to_owned());
        for service in 0..self.services.len() {
            self.operator_asks(Order::Uncordon(service));
            self.later(1000, move |world| world.operator_asks(Order::Resize { service, capacity: None }));
        }
    }
}
