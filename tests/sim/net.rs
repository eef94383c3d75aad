//! Connections between hosts and the broker: bytes in order, held up while a link is cut, lost with
//! the connection. It knows who hangs on a connection, not what is said on it.

use crate::world::{Act, Owner, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A peer that hears nothing for two heartbeats gives a connection up.
const DEAF_AFTER: u64 = 10_000;

/// A session is one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Consume,
    Publish,
}

/// Which way nothing gets through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) up: bool,
    pub(crate) down: bool,
}

/// How the broker came to give a connection up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The peer closed it, or its process died.
    Closed,
    /// No byte for two to three heartbeats.
    Silent,
    /// The broker closed it and said so.
    Told,
    /// The broker closed it and the peer does not hear of it.
    Untold,
}

/// How a process ends: its kernel closes its connections, or ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Killed,
    PoweredOff,
}

pub(crate) struct Conn {
    pub(crate) owner: Owner,
    pub(crate) lane: Lane,
    pub(crate) host_open: bool,
    pub(crate) broker_open: bool,
    /// The peer heard that publishers are blocked.
    pub(crate) blocked: bool,
    /// After the next publish the connection breaks, before the confirm.
    pub(crate) breaks_after_publish: bool,
    /// The broker's answers no longer reach the peer.
    mute: bool,
    up_at: u64,
    down_at: u64,
    up_held: Vec<Act>,
    down_held: Vec<Act>,
    last_byte: u64,
    deaf_since: Option<u64>,
    /// Read by the broker when publishers are no longer blocked.
    door: Vec<Act>,
    /// What is told to those who wait for an answer when the connection is lost.
    waiting: BTreeMap<u64, Act>,
    asked: u64,
}

#[derive(Default)]
pub(crate) struct Net {
    pub(crate) conns: Vec<Conn>,
    pub(crate) cuts: Vec<[Cut; 2]>,
}

impl Net {
    pub(crate) fn new(hosts: usize) -> Self {
        Self { conns: Vec::new(), cuts: vec![[Cut::default(); 2]; hosts] }
    }
    pub(crate) fn cut(&self, conn: usize) -> Cut {
        let conn = &self.conns[conn];
        self.cuts[conn.owner.host][conn.lane as usize]
    }
    pub(crate) fn is_open(&self, conn: usize) -> bool {
        self.conns[conn].host_open
    }
}

impl World {
    /// Opens a session for the present process of a host, if the broker can be reached.
    pub(crate) fn open_session(&mut self, host: usize) -> Option<[usize; 2]> {
        if !self.broker.up || self.net.cuts[host] != [Cut::default(); 2] {
            return None;
        }
        let owner = Owner { host, life: self.hosts[host].life };
        Some([Lane::Consume, Lane::Publish].map(|lane| {
            let conn = self.net.conns.len();
            self.net.conns.push(Conn {
                owner,
                lane,
                host_open: true,
                broker_open: true,
                blocked: false,
                breaks_after_publish: false,
                mute: false,
                up_at: self.now,
                down_at: self.now,
                up_held: Vec::new(),
                down_held: Vec::new(),
                last_byte: self.now,
                deaf_since: None,
                door: Vec::new(),
                waiting: BTreeMap::new(),
                asked: 0,
            });
            let timeout = self.roll(10_000, 15_000);
            self.later(timeout, move |world| world.check_heartbeat(conn, timeout));
            conn
        }))
    }

    fn check_heartbeat(&mut self, conn: usize, timeout: u64) {
        let it = &mut self.net.conns[conn];
        if !it.broker_open {
            return;
        }
        if self.broker.blocked && it.lane == Lane::Publish {
            // A blocked publisher is never taken for dead.
            it.last_byte = self.now;
        }
        let dies_at = it.last_byte + timeout;
        if dies_at <= self.now {
            self.broker_closes(conn, Loss::Silent);
        } else {
            self.later(dies_at - self.now, move |world| world.check_heartbeat(conn, timeout));
        }
    }

    /// Whether a peer has missed two heartbeats of the broker. To be asked often.
    pub(crate) fn is_deaf(&mut self, conn: usize) -> bool {
        let deaf = self.net.cut(conn).down || self.net.conns[conn].mute;
        let since = &mut self.net.conns[conn].deaf_since;
        *since = deaf.then(|| since.unwrap_or(self.now));
        since.is_some_and(|since| self.now - since > DEAF_AFTER)
    }

    /// From a host to the broker.
    pub(crate) fn up(&mut self, conn: usize, act: impl FnOnce(&mut Self) + 'static) {
        if self.net.conns[conn].host_open {
            self.send_up(conn, Box::new(act));
        }
    }

    fn send_up(&mut self, conn: usize, act: Act) {
        if self.net.cut(conn).up {
            return self.net.conns[conn].up_held.push(act);
        }
        let latency = self.roll(1, 20);
        let it = &mut self.net.conns[conn];
        it.up_at = it.up_at.max(self.now + latency);
        let at = it.up_at;
        self.push(at, None, Box::new(move |world| world.arrive(conn, act)));
    }

    fn arrive(&mut self, conn: usize, act: Act) {
        let blocked = self.broker.blocked;
        let it = &mut self.net.conns[conn];
        if !it.broker_open {
            if !it.mute {
                self.tell_closed(conn);
            }
        } else if blocked && it.lane == Lane::Publish {
            it.door.push(act);
        } else {
            it.last_byte = self.now;
            act(self);
        }
    }

    /// The broker reads again what stood at its door.
    pub(crate) fn open_doors(&mut self) {
        for conn in 0..self.net.conns.len() {
            for act in std::mem::take(&mut self.net.conns[conn].door) {
                self.arrive(conn, act);
            }
        }
    }

    /// From the broker to a host.
    pub(crate) fn down(&mut self, conn: usize, act: impl FnOnce(&mut Self) + 'static) {
        let it = &self.net.conns[conn];
        if !it.mute {
            let open = move |world: &mut Self| {
                if world.net.conns[conn].host_open {
                    act(world);
                }
            };
            self.send_down(conn, Box::new(open));
        }
    }

    fn send_down(&mut self, conn: usize, act: Act) {
        if self.net.cut(conn).down {
            return self.net.conns[conn].down_held.push(act);
        }
        let latency = self.roll(1, 20);
        let it = &mut self.net.conns[conn];
        it.down_at = it.down_at.max(self.now + latency);
        let (at, owner) = (it.down_at, it.owner);
        self.push(at, Some(owner), act);
    }

    /// Cuts or heals the link of one connection of a host; what was held up goes on its way.
    pub(crate) fn set_cut(&mut self, host: usize, lane: Lane, cut: Cut) {
        self.net.cuts[host][lane as usize] = cut;
        let of_link = |conn: &Conn| conn.owner.host == host && conn.lane == lane;
        let conns: Vec<usize> =
            (0..self.net.conns.len()).filter(|conn| of_link(&self.net.conns[*conn])).collect();
        for conn in conns {
            for act in std::mem::take(&mut self.net.conns[conn].up_held) {
                self.send_up(conn, act);
            }
            for act in std::mem::take(&mut self.net.conns[conn].down_held) {
                self.send_down(conn, act);
            }
        }
    }

    pub(crate) fn broker_closes(&mut self, conn: usize, loss: Loss) {
        if !self.net.conns[conn].broker_open {
            return;
        }
        let held_up = self.net.cut(conn).down;
        let it = &mut self.net.conns[conn];
        it.broker_open = false;
        it.door.clear();
        let loss = if held_up && loss == Loss::Told { Loss::Untold } else { loss };
        self.broker_forgets(conn, loss);
        match loss {
            Loss::Untold if !held_up => self.net.conns[conn].mute = true,
            Loss::Closed => {}
            Loss::Untold | Loss::Silent | Loss::Told => self.tell_closed(conn),
        }
    }

    fn tell_closed(&mut self, conn: usize) {
        self.down(conn, move |world| world.host_loses(conn));
    }

    fn host_loses(&mut self, conn: usize) {
        let host = self.net.conns[conn].owner.host;
        self.net.conns[conn].host_open = false;
        for act in std::mem::take(&mut self.net.conns[conn].waiting).into_values() {
            act(self);
        }
        if host < self.services.len() {
            self.service_loses(host, conn);
        } else {
            self.manager_loses(host, conn);
        }
    }

    /// The peer closes it, or its process is gone and the kernel does.
    pub(crate) fn host_closes(&mut self, conn: usize) {
        if !self.net.conns[conn].host_open {
            return;
        }
        self.net.conns[conn].host_open = false;
        self.send_up(conn, Box::new(move |world| world.broker_closes(conn, Loss::Closed)));
        for act in std::mem::take(&mut self.net.conns[conn].waiting).into_values() {
            act(self);
        }
    }

    /// The process behind it is gone: nobody waits any more.
    pub(crate) fn host_dies(&mut self, conn: usize, ending: Ending) {
        self.net.conns[conn].waiting.clear();
        match ending {
            Ending::Killed => self.host_closes(conn),
            Ending::PoweredOff => self.net.conns[conn].host_open = false,
        }
    }

    /// Asks the broker something on a connection; `None` if the connection is lost before the answer.
    pub(crate) fn ask<T: 'static>(
        &mut self,
        conn: usize,
        question: impl FnOnce(&mut Self) -> T + 'static,
        then: impl FnOnce(&mut Self, Option<T>) + 'static,
    ) {
        if !self.net.conns[conn].host_open {
            return then(self, None);
        }
        let then = Rc::new(RefCell::new(Some(then)));
        let on_loss = Rc::clone(&then);
        let it = &mut self.net.conns[conn];
        it.asked += 1;
        let number = it.asked;
        let lost = move |world: &mut Self| {
            let then = on_loss.borrow_mut().take();
            if let Some(then) = then {
                then(world, None);
            }
        };
        it.waiting.insert(number, Box::new(lost));
        self.up(conn, move |world| {
            let answer = question(world);
            world.down(conn, move |world| {
                world.net.conns[conn].waiting.remove(&number);
                let then = then.borrow_mut().take();
                if let Some(then) = then {
                    then(world, Some(answer));
                }
            });
        });
    }
}
