//! Carries out what a history says, and sees to it that nothing is left broken at its end.

use crate::history::{Action, Fault, History};
use crate::net::{Cut, Ending, Lane, Loss};
use crate::users::observer_name;
use crate::world::World;

impl World {
    pub(crate) fn schedule(&mut self, history: &History) {
        for host in 0..self.hosts.len() {
            let at = self.roll(0, 500);
            self.later(at, move |world| world.boot(host));
        }
        for (at, action) in &history.actions {
            let action = action.clone();
            self.later(*at, move |world| world.act(action));
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Person(observer, ask) => {
                self.tell(|_| format!("a person asks: {ask:?} {}", observer_name(observer)));
                self.person_asks(observer, ask);
            }
            Action::Operator(order) => {
                self.tell(|_| format!("an operator asks: {order:?}"));
                self.operator_asks(order);
            }
            Action::Fault(fault) => {
                self.tell(|world| format!("FAULT {}", world.sentence(&fault)));
                self.fault(fault);
            }
        }
    }

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { host, ending, back_in } => {
                self.kill(host, ending);
                self.later(back_in.max(100), move |world| world.boot(host));
            }
            Fault::Freeze { host, for_ms } => {
                self.freeze(host);
                self.later(for_ms, move |world| world.thaw(host));
            }
            Fault::Cut { host, lanes, cut, for_ms } => {
                self.cut_lanes(host, &lanes, cut);
                self.later(for_ms, move |world| world.cut_lanes(host, &lanes, Cut::default()));
            }
            Fault::Reset { host, lane, told } => {
                let loss = if told { Loss::Told } else { Loss::Untold };
                if let Some(conn) = self.live_conn(host, lane) {
                    self.broker_closes(conn, loss);
                }
            }
            Fault::BreakAfterPublish { host } => {
                if let Some(conn) = self.live_conn(host, Lane::Publish) {
                    self.net.conns[conn].breaks_after_publish = true;
                }
            }
            Fault::LoseAnswers { count } => self.db.loses_answers = count,
            Fault::DatabaseDown { for_ms } => {
                self.db.up = false;
                self.later(for_ms, |world| world.db.up = true);
            }
            Fault::DiskFull { for_ms } => {
                self.db.full = true;
                self.later(for_ms, |world| world.db.full = false);
            }
            Fault::Blocked { for_ms } => {
                self.set_blocked(true);
                self.later(for_ms, |world| world.set_blocked(false));
            }
            Fault::BrokerRestart { down_ms } => self.restart_broker(down_ms),
            Fault::RejectWork { count } => self.broker.rejects = count,
            Fault::Drain { service, back_in } => {
                if !self.hosts[service].frozen {
                    self.drain(service);
                }
                self.later(back_in, move |world| world.come_back(service));
            }
            Fault::Flaps { service, times } => self.flap(service, times),
            Fault::Orphan { service, count } => self.orphan(service, count),
            Fault::LoseDeliveries { count } => self.broker.mislays = count,
            Fault::LoseWork { down_ms } => self.lose_work(down_ms),
            Fault::TurnBackWork { in_ms } => {
                let content = self.content_of_work();
                self.later(in_ms, move |world| {
                    let down_ms = world.roll(200, 4000);
                    world.turn_back_work(content, down_ms);
                });
            }
            Fault::Hold { for_ms } => {
                self.switch_hold(true);
                self.later(for_ms, |world| world.switch_hold(false));
            }
        }
    }

    fn flap(&mut self, service: usize, times: u32) {
        let Some(left) = times.checked_sub(1) else { return };
        if let Some(conn) = self.live_conn(service, Lane::Consume) {
            self.broker_closes(conn, Loss::Told);
        }
        let pause = self.roll(3000, 7000);
        self.later(pause, move |world| world.flap(service, left));
    }

    /// Starts a service again once it has stopped.
    fn come_back(&mut self, service: usize) {
        if self.hosts[service].up && self.is_stopping(service) {
            self.later(1000, move |world| world.come_back(service));
        } else {
            self.boot(service);
        }
    }

    pub(crate) fn live_conn(&self, host: usize, lane: Lane) -> Option<usize> {
        let mut conns = (0..self.net.conns.len()).rev();
        conns.find(|conn| {
            let it = &self.net.conns[*conn];
            it.owner.host == host && it.lane == lane && it.broker_open
        })
    }

    fn cut_lanes(&mut self, host: usize, lanes: &[Lane], cut: Cut) {
        for lane in lanes {
            self.set_cut(host, *lane, cut);
        }
    }

    /// The faults are over: everything is there again and can be reached.
    pub(crate) fn calm(&mut self) {
        self.tell(|_| "the faults are over".to_owned());
        for host in 0..self.hosts.len() {
            self.cut_lanes(host, &[Lane::Consume, Lane::Publish], Cut::default());
            self.thaw(host);
        }
        self.db.up = true;
        self.db.full = false;
        self.db.loses_answers = 0;
        self.broker.up = true;
        self.broker.rejects = 0;
        self.broker.mislays = 0;
        if self.broker.blocked {
            self.set_blocked(false);
        }
        for conn in &mut self.net.conns {
            conn.breaks_after_publish = false;
        }
        for service in 0..self.services.len() {
            self.come_back(service);
        }
    }

    pub(crate) fn stop_managers(&mut self) {
        for m in 0..self.managers.len() {
            let host = self.host_of(m);
            self.kill(host, Ending::Killed);
        }
        self.tell(|_| "no manager is left".to_owned());
    }

    pub(crate) fn start_managers(&mut self) {
        for m in 0..self.managers.len() {
            let host = self.host_of(m);
            self.boot(host);
        }
    }

    fn sentence(&self, fault: &Fault) -> String {
        match fault {
            Fault::Crash { host, ending, back_in } => {
                format!("{} is {ending:?}, back after {back_in} ms", self.name(*host))
            }
            Fault::Freeze { host, for_ms } => format!("{} is frozen for {for_ms} ms", self.name(*host)),
            Fault::Cut { host, lanes, cut, for_ms } => {
                format!("{}: {lanes:?} cut ({cut:?}) for {for_ms} ms", self.name(*host))
            }
            Fault::Reset { host, lane, told } => {
                format!("{}: {lane:?} dropped by the broker, told: {told}", self.name(*host))
            }
            Fault::BreakAfterPublish { host } => {
                format!("{}: the next confirm is lost", self.name(*host))
            }
            other => format!("{other:?}"),
        }
    }
}
