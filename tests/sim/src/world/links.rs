//! The links between the hosts and the broker: latency, cuts, heartbeats, and both kernels' view of a connection.

use super::{BROKER, World};
use crate::broker::{self, Node};
use crate::machine;
use crate::network::{Ask, AtBroker, ConnId, Down, Frame, Lane, Opening, Payload, Up};
use crate::record::Loss;
use std::hash::Hash as _;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// The heartbeat that brokers and clients agree on, in ms; both send one twice as often on an idle connection.
const HEARTBEAT: u64 = 5000;
/// How long the broker waits for a silent client: between two and three heartbeats. A client waits two
/// heartbeats for the broker.
const BROKER_PATIENCE: u64 = HEARTBEAT * 5 / 2;
const CLIENT_PATIENCE: u64 = HEARTBEAT * 2;

/// What a link currently blocks, and its additional latency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) cut_up: bool,
    pub(crate) cut_down: bool,
    /// Added to the latency, in ms.
    pub(crate) delay: u64,
}

/// One lane of a session, as both kernels see it.
pub(super) struct LaneState {
    pub(super) to_broker: UnboundedSender<AtBroker>,
    /// When the newest frame up and down arrives: frames do not overtake each other.
    pub(super) arrives: [u64; 2],
    pub(super) sent_at: [u64; 2],
    pub(super) heard_by_broker: u64,
    pub(super) heard_by_client: u64,
    pub(super) open_at_broker: bool,
}

pub(super) struct Conn {
    pub(super) host: usize,
    pub(super) life: u32,
    pub(super) to_client: UnboundedSender<Down>,
    pub(super) lanes: [LaneState; 2],
    pub(super) open_at_client: bool,
}

impl World {
    pub(crate) fn set_link(&mut self, at: usize, lane: Lane, link: Link) {
        self.hosts[at].links[lane as usize] = link;
        for frame in std::mem::take(&mut self.hosts[at].held_up) {
            self.transmit(frame);
        }
    }

    /// Takes what hosts have sent.
    pub(super) fn collect(&mut self) {
        let (openings, frames) = self.network.take();
        for opening in openings {
            self.open(opening);
        }
        for frame in frames {
            self.transmit(frame);
        }
    }

    fn open(&mut self, Opening { conn, host, life, client, broker }: Opening) {
        let node = Node {
            memory: self.broker.clone(),
            network: self.network.clone(),
            faults: Arc::clone(&self.broker_faults),
        };
        let now = self.now;
        let lanes = broker.map(|(to_broker, arrivals)| (to_broker, Some(arrivals)));
        let mut at = Lane::BOTH.into_iter();
        let lanes = lanes.map(|(to_broker, arrivals)| {
            if let (Some(lane), Some(arrivals), true) = (at.next(), arrivals, self.broker_up) {
                self.spawn(BROKER, broker::serve(node.clone(), (host, conn, lane), arrivals));
            }
            LaneState {
                to_broker,
                arrives: [0, 0],
                sent_at: [now, now],
                heard_by_broker: now,
                heard_by_client: now,
                open_at_broker: self.broker_up,
            }
        });
        let open = self.broker_up;
        self.conns.push(Conn { host, life, to_client: client, lanes, open_at_client: true });
        if !open {
            let refused = Down::Lost("connection refused".to_owned());
            self.transmit(Frame { conn, lane: Lane::Consume, payload: Payload::Down(refused) });
        }
    }

    pub(crate) fn transmit(&mut self, frame: Frame) {
        let up = matches!(frame.payload, Payload::Up(_));
        if let (Some(sent), Payload::Up(Up::Ask(_, Ask::Publish(target, message)))) =
            (&mut self.sent, &frame.payload)
        {
            crate::count::on_publish(sent, target, message);
        }
        let it = &mut self.conns[frame.conn];
        if let Payload::Up(Up::Close) = frame.payload {
            it.open_at_client = false;
        }
        let lane = frame.lane as usize;
        if let Payload::Down(Down::Lost(_)) = frame.payload {
            it.lanes[lane].open_at_broker = false;
        }
        let host = &mut self.hosts[it.host];
        let link = host.links[lane];
        if (up && link.cut_up) || (!up && link.cut_down) {
            host.held_up.push(frame);
            return;
        }
        let latency = 1 + machine::chance() % 3 + link.delay;
        let state = &mut it.lanes[lane];
        let way = usize::from(!up);
        state.sent_at[way] = self.now;
        state.arrives[way] = state.arrives[way].max(self.now + latency);
        let delay = state.arrives[way] - self.now;
        self.later(delay, move |world| world.arrive(frame));
    }

    fn arrive(&mut self, Frame { conn, lane, payload }: Frame) {
        self.frames += 1;
        (self.now, conn, lane).hash(&mut self.digest);
        let it = &mut self.conns[conn];
        let state = &mut it.lanes[lane as usize];
        match payload {
            Payload::Up(up) => {
                state.heard_by_broker = self.now;
                if matches!(up, Up::Close) {
                    state.open_at_broker = false;
                }
                if !matches!(up, Up::Heartbeat) {
                    let _closed = state.to_broker.send(AtBroker::Arrived(up));
                    self.hosts[BROKER].stirred = true;
                }
            }
            Payload::Down(down) => {
                state.heard_by_client = self.now;
                if !matches!(down, Down::Heartbeat) {
                    let _gone = it.to_client.send(down);
                    let host = it.host;
                    self.hosts[host].stirred = true;
                }
            }
        }
    }

    /// Runs every half heartbeat: both sides send a heartbeat, and close the connection if the other side was
    /// silent for too long.
    pub(crate) fn heartbeats(&mut self) {
        self.later(HEARTBEAT / 2, Self::heartbeats);
        for conn in 0..self.conns.len() {
            for lane in Lane::BOTH {
                self.heartbeat(conn, lane);
            }
        }
    }

    fn heartbeat(&mut self, conn: ConnId, lane: Lane) {
        let (now, it) = (self.now, &self.conns[conn]);
        let state = &it.lanes[lane as usize];
        let host = &self.hosts[it.host];
        let client_runs = it.open_at_client && host.runs() && host.life == it.life;
        let idle = |way: usize| now - state.sent_at[way] >= HEARTBEAT / 2;
        let (from_client, from_broker) = (client_runs && idle(0), state.open_at_broker && idle(1));
        let deaf = client_runs && now - state.heard_by_client > CLIENT_PATIENCE;
        let broker_runs = self.broker_up && self.hosts[BROKER].runs();
        let silent = state.open_at_broker && broker_runs && now - state.heard_by_broker > BROKER_PATIENCE;
        if from_client {
            self.transmit(Frame { conn, lane, payload: Payload::Up(Up::Heartbeat) });
        }
        if from_broker && broker_runs {
            self.transmit(Frame { conn, lane, payload: Payload::Down(Down::Heartbeat) });
        }
        if silent {
            self.at_broker((conn, lane), AtBroker::Close(Loss::Silent));
        }
        if deaf {
            let lost = Down::Lost("missed heartbeats from the broker".to_owned());
            let (host, client) = (self.conns[conn].host, &self.conns[conn].to_client);
            let _gone = client.send(lost);
            self.hosts[host].stirred = true;
        }
    }

    /// Whether messages of the broker reach this session without a fault-induced delay.
    pub(super) fn hears(&self, conn: ConnId) -> bool {
        let link = self.hosts[self.conns[conn].host].links[Lane::Consume as usize];
        !link.cut_down && link.delay == 0
    }

    /// Tells the broker's end of a lane.
    pub(crate) fn at_broker(&mut self, (conn, lane): (ConnId, Lane), order: AtBroker) {
        let state = &mut self.conns[conn].lanes[lane as usize];
        if matches!(order, AtBroker::Close(_) | AtBroker::Abandon(_)) {
            state.open_at_broker = false;
        }
        let _closed = state.to_broker.send(order);
        self.hosts[BROKER].stirred = true;
    }

    /// The newest session of a host that is open at the broker.
    pub(crate) fn session_of(&self, host: usize, lane: Lane) -> Option<ConnId> {
        let open = |conn: &ConnId| {
            let it = &self.conns[*conn];
            it.host == host && it.lanes[lane as usize].open_at_broker
        };
        (0..self.conns.len()).rev().find(open)
    }

    pub(crate) fn open_lanes(&self) -> Vec<(ConnId, Lane)> {
        let all = (0..self.conns.len()).flat_map(|conn| Lane::BOTH.map(|lane| (conn, lane)));
        all.filter(|(conn, lane)| self.conns[*conn].lanes[*lane as usize].open_at_broker).collect()
    }

    pub(crate) fn send_down(&mut self, (conn, lane): (ConnId, Lane), down: Down) {
        self.transmit(Frame { conn, lane, payload: Payload::Down(down) });
    }
}
