//! Executes the actions of a history, and repairs at its end what the faults have left broken.

use crate::actors;
use crate::history::{Action, Fault, History};
use crate::network::{AtBroker, Down, Lane};
use crate::record::{Fact, Loss, note};
use crate::world::{BROKER, Link, Power, World};
use everwatch_broker::{QueueBackup, Topology};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How long the managers are stopped for a restore of the database.
const RESTORE_TAKES: u64 = 2000;
/// How long safe mode stays on after a restore, in ms. By then every service has sent its inventory.
const SAFE_AFTER_RESTORE: u64 = 90_000;

impl World {
    /// The host of a service, by its number.
    pub(crate) fn host_of(&self, service: usize) -> usize {
        service + 1
    }
    pub(crate) fn managers(&self) -> std::ops::Range<usize> {
        1 + self.setup.services.len()..self.hosts.len()
    }

    pub(crate) fn schedule(&mut self, history: &History) {
        self.boot(BROKER);
        self.heartbeats();
        self.tick();
        for host in 1..self.hosts.len() {
            let at = self.roll(0, 500);
            self.later(at, move |world| world.boot(host));
        }
        for (at, action) in &history.actions {
            let action = action.clone();
            if let Action::Fault(Fault::DatabaseRestored { backup_at }) = action {
                self.later(backup_at, Self::back_up);
            }
            self.later(*at, move |world| world.act(action));
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::User(observer, ask) => self.user_asks(observer, ask),
            Action::Operator(order) => self.operator_asks(order),
            Action::Fault(fault) => {
                self.tell(|world| format!("FAULT {}", world.sentence(&fault)));
                self.judge.on_fault(self.now, &fault);
                self.fault(fault);
            }
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each fault")]
    fn fault(&mut self, fault: Fault) {
        let database = Arc::clone(&self.database);
        match fault {
            Fault::Crash { host, power, back_in } => {
                self.kill(host, power);
                self.later(back_in.max(100), move |world| world.boot(host));
            }
            Fault::Freeze { host, for_ms } => {
                self.freeze(host);
                self.later(for_ms, move |world| world.thaw(host));
            }
            Fault::Cut { host, lanes, up, down, for_ms } => {
                let cut = Link { cut_up: up, cut_down: down, delay: 0 };
                self.set_links(host, &lanes, cut);
                self.later(for_ms, move |world| world.set_links(host, &lanes, Link::default()));
            }
            Fault::Slow { host, lane, delay, for_ms } => {
                self.set_link(host, lane, Link { delay, ..Link::default() });
                self.later(for_ms, move |world| world.set_link(host, lane, Link::default()));
            }
            Fault::Reset { host, lane, told } => {
                let loss = if told { Loss::Told } else { Loss::Untold };
                self.close_session(host, lane, loss);
            }
            Fault::CloseChannel { host } => {
                if let Some(conn) = self.session_of(host, Lane::Consume) {
                    self.at_broker((conn, Lane::Consume), AtBroker::CloseChannel);
                }
            }
            Fault::BreakAfterPublish { host } => {
                if let Some(conn) = self.session_of(host, Lane::Publish) {
                    self.at_broker((conn, Lane::Publish), AtBroker::BreakAfterPublish);
                }
            }
            Fault::BreakAfterSettlement { host } => {
                if let Some(conn) = self.session_of(host, Lane::Publish) {
                    self.at_broker((conn, Lane::Publish), AtBroker::BreakAfterSettlement);
                }
            }
            Fault::LoseAnswers { count } => database.loses_answers.store(count, Ordering::Relaxed),
            Fault::DatabaseAway { for_ms } => {
                database.away.store(true, Ordering::Relaxed);
                self.later(for_ms, move |_| database.away.store(false, Ordering::Relaxed));
            }
            Fault::DatabaseSlow { delay, for_ms } => {
                database.delay.store(delay, Ordering::Relaxed);
                self.later(for_ms, move |_| database.delay.store(0, Ordering::Relaxed));
            }
            Fault::DatabaseFull { for_ms } => {
                database.full.store(true, Ordering::Relaxed);
                self.later(for_ms, move |_| database.full.store(false, Ordering::Relaxed));
            }
            Fault::DatabaseRestored { .. } => self.restore_database(),
            Fault::Blocked { for_ms } => {
                self.set_blocked(true);
                self.later(for_ms, |world| world.set_blocked(false));
            }
            Fault::BrokerRestart { down_ms } => self.restart_broker(down_ms),
            Fault::BrokerPauses { for_ms } => {
                self.freeze(BROKER);
                self.later(for_ms, |world| world.thaw(BROKER));
            }
            Fault::RejectWork { count } => self.broker_faults.rejects.store(count, Ordering::Relaxed),
            Fault::Stop { service, back_in } => {
                let host = self.host_of(service);
                if !self.hosts[host].frozen {
                    self.stop_service(host);
                }
                self.later(back_in, move |world| world.come_back(host));
            }
            Fault::Flaps { service, times } => self.flap(self.host_of(service), times),
            Fault::Abandon { service, count } => {
                if let Some(conn) = self.session_of(self.host_of(service), Lane::Consume) {
                    self.at_broker((conn, Lane::Consume), AtBroker::Abandon(count));
                }
            }
            Fault::GiveAway { service, count } => {
                if let Some(conn) = self.session_of(self.host_of(service), Lane::Consume) {
                    self.at_broker((conn, Lane::Consume), AtBroker::GiveAway(count));
                }
            }
            Fault::LoseDeliveries { count } => self.broker_faults.mislays.store(count, Ordering::Relaxed),
            Fault::LoseWork { down_ms } => {
                self.restart_broker(down_ms);
                self.later(0, Self::lose_work);
            }
            Fault::RewindWork { in_ms } => {
                let backup = self.back_up_work();
                self.later(in_ms, move |world| {
                    let down_ms = world.roll(200, 4000);
                    world.restart_broker(down_ms);
                    world.later(0, move |world| world.rewind_work(&backup));
                });
            }
            Fault::ClockStep { host, by_ms } => self.hosts[host].skew += by_ms,
        }
    }

    /// Tells a service to stop in order.
    pub(crate) fn stop_service(&mut self, host: usize) {
        self.judge.on_stop(host);
        self.spawn(host, async move { actors::stop(host) });
    }

    /// Restarts a service once it has stopped.
    pub(crate) fn come_back(&mut self, host: usize) {
        if self.hosts[host].is_up() && self.judge.is_stopping(host) {
            self.later(1000, move |world| world.come_back(host));
        } else {
            self.boot(host);
        }
    }

    fn set_links(&mut self, host: usize, lanes: &[Lane], link: Link) {
        for lane in lanes {
            self.set_link(host, *lane, link);
        }
    }

    fn close_session(&mut self, host: usize, lane: Lane, loss: Loss) {
        if let Some(conn) = self.session_of(host, lane) {
            self.at_broker((conn, lane), AtBroker::Close(loss));
        }
    }

    fn flap(&mut self, host: usize, times: u32) {
        let Some(left) = times.checked_sub(1) else { return };
        self.close_session(host, Lane::Consume, Loss::Told);
        let pause = self.roll(3000, 7000);
        self.later(pause, move |world| world.flap(host, left));
    }

    fn set_blocked(&mut self, blocked: bool) {
        self.broker.block(blocked);
        self.hosts[BROKER].stir();
        for (conn, lane) in self.open_lanes() {
            if lane == Lane::Publish {
                self.send_down((conn, lane), Down::Blocked(blocked));
            }
        }
    }

    /// Every session ends, every held message is ready again, and connections are refused for `down_ms`.
    fn restart_broker(&mut self, down_ms: u64) {
        self.thaw(BROKER);
        self.broker_up = false;
        for lane in self.open_lanes() {
            self.at_broker(lane, AtBroker::Close(Loss::Told));
        }
        // This also ends operations that wait inside the broker.
        self.broker.cut("");
        self.later(1, Self::recover_abandoned);
        self.later(down_ms.max(2), |world| world.broker_up = true);
    }

    fn work_queues(&self) -> Vec<String> {
        let topology = Topology::new(crate::PREFIX);
        self.setup.pools().iter().map(|pool| topology.work(pool)).collect()
    }

    fn lose_work(&mut self) {
        for queue in self.work_queues() {
            self.broker.delete_queue(&queue);
        }
        note(Fact::WorkLost);
    }

    fn back_up_work(&self) -> Vec<(String, QueueBackup)> {
        self.work_queues()
            .into_iter()
            .map(|queue| (queue.clone(), self.broker.backup_queue(&queue)))
            .collect()
    }

    fn rewind_work(&mut self, backup: &[(String, QueueBackup)]) {
        note(Fact::WorkLost);
        let mut messages = Vec::new();
        for (queue, content) in backup {
            messages.extend(content.bodies().filter_map(crate::broker::label));
            self.broker.restore_queue(queue, content);
        }
        note(Fact::Rewound { messages });
    }

    fn back_up(&mut self) {
        self.tell(|_| "the database is backed up".to_owned());
        self.users.backup = Some((self.database.memory.backup(), self.users.intents.clone()));
    }

    /// Restores the database as the documentation describes: stop the managers, restore the backup, run
    /// `migrate --restored`, start the managers, check, and switch safe mode off.
    fn restore_database(&mut self) {
        for host in self.managers() {
            self.kill(host, Power::On);
        }
        let Some((backup, _)) = &self.users.backup else { return };
        self.database.restore(backup);
        note(Fact::Restored);
        note(Fact::SafeMode { on: true });
        self.users.on_restored();
        self.later(RESTORE_TAKES, |world| {
            for host in world.managers() {
                world.boot(host);
            }
        });
        self.later(SAFE_AFTER_RESTORE, |world| {
            world.operator_asks(crate::history::Order::SafeMode { on: false });
        });
    }

    /// Ends all faults: starts every process and restores every connection.
    pub(crate) fn calm(&mut self, with_managers: bool) {
        self.tell(|_| "the faults are over".to_owned());
        self.judge.on_calm(self.now);
        for host in 0..self.hosts.len() {
            self.set_links(host, &Lane::BOTH, Link::default());
            self.thaw(host);
        }
        self.database.away.store(false, Ordering::Relaxed);
        self.database.full.store(false, Ordering::Relaxed);
        self.database.delay.store(0, Ordering::Relaxed);
        self.database.loses_answers.store(0, Ordering::Relaxed);
        self.broker_up = true;
        self.broker_faults.rejects.store(0, Ordering::Relaxed);
        self.broker_faults.mislays.store(0, Ordering::Relaxed);
        self.set_blocked(false);
        for host in 1..=self.setup.services.len() {
            self.come_back(host);
        }
        for host in self.managers().filter(|_| with_managers) {
            self.boot(host);
        }
    }

    fn sentence(&self, fault: &Fault) -> String {
        let host = match fault {
            Fault::Crash { host, .. }
            | Fault::Freeze { host, .. }
            | Fault::Cut { host, .. }
            | Fault::Slow { host, .. }
            | Fault::Reset { host, .. }
            | Fault::CloseChannel { host }
            | Fault::BreakAfterPublish { host }
            | Fault::BreakAfterSettlement { host }
            | Fault::ClockStep { host, .. } => Some(*host),
            Fault::Stop { service, .. }
            | Fault::Flaps { service, .. }
            | Fault::Abandon { service, .. }
            | Fault::GiveAway { service, .. } => Some(self.host_of(*service)),
            _ => None,
        };
        let name = host.map(|host| format!("{}: ", self.hosts[host].name)).unwrap_or_default();
        format!("{name}{fault:?}")
    }
}
