//! What a service tells: numbered, batched, confirmed, in order; mirrors the SDK's reporter.

use crate::broker::QueueId;
use crate::net::{Lane, Loss};
use crate::service::Say;
use crate::world::{World, duration};
use everwatch_core::id::Pool;
use everwatch_core::message::{BATCH_MAX, Numbered, Report, Reports, StateMessage, encode};
use everwatch_core::slots::Input;
use std::rc::Rc;

const LINGER: u64 = 5;

impl World {
    pub(crate) fn say(&mut self, s: usize, say: Say) {
        self.services[s].said.push_back(say);
        self.speak(s);
    }

    fn speak(&mut self, s: usize) {
        let it = &mut self.services[s];
        if !it.saying && !it.said.is_empty() {
            it.saying = true;
            self.soon(s, LINGER, move |world| world.send_reports(s));
        }
    }

    fn send_reports(&mut self, s: usize) {
        let (at, birth) = (self.wall(s), self.birth_of(s));
        let it = &mut self.services[s];
        let batch: Vec<Say> = it.said.drain(..it.said.len().min(BATCH_MAX)).collect();
        let mut entries = Vec::new();
        for say in &batch {
            it.seq += 1;
            let report = match say {
                Say::Tell(report) => report.clone(),
                Say::Settle(report) => Report::Run(report.clone()),
                Say::Born => birth.clone(),
                Say::Gone => Report::ServiceGone,
                Say::Made => Report::WorkQueueCreated { pool: Pool::default() },
            };
            entries.push(Numbered::new(it.seq, at, report));
        }
        let reports = Reports { service: it.id, entries };
        let body: Rc<[u8]> = encode(&StateMessage::Reports(reports)).unwrap().into();
        let (conn, incarnation, sent) = (it.conn(Lane::Publish), it.incarnation, self.now);
        let question = move |world: &mut Self| {
            world.enqueue(QueueId::State, body);
            world.break_after_publish(conn);
        };
        self.ask(conn, question, move |world, answer| {
            if world.services[s].incarnation != incarnation {
                return;
            }
            if answer.is_none() {
                return world.fall(s, "the session is lost");
            }
            let proofs = &mut world.services[s].proofs;
            proofs.confirmed = proofs.confirmed.max(duration(sent));
            world.services[s].saying = false;
            for say in batch {
                world.on_said(s, say);
            }
            world.speak(s);
        });
    }

    fn on_said(&mut self, s: usize, say: Say) {
        match say {
            Say::Tell(_) | Say::Made => {}
            Say::Settle(report) if !report.event.settles() => {
                self.step(s, Input::Announced { id: report.id, epoch: report.epoch });
            }
            Say::Settle(report) => {
                self.on_settlement_confirmed(s, &report);
                self.step(s, Input::Confirmed { id: report.id, epoch: report.epoch });
            }
            Say::Born => self.on_born(s),
            Say::Gone => self.exit(s),
        }
    }

    /// A fault may have this connection break between a publish and its confirm.
    pub(crate) fn break_after_publish(&mut self, conn: usize) {
        if std::mem::take(&mut self.net.conns[conn].breaks_after_publish) {
            self.tell(|world| {
                let host = world.net.conns[conn].owner.host;
                format!("{} publishes and its connection breaks before the confirm", world.name(host))
            });
            self.broker_closes(conn, Loss::Told);
        }
    }
}
