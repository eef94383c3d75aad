//! State queues that remain after their number was reduced.

use super::{Finding, Server, Severity, SurplusQueue};

pub(super) fn finding(queue: &SurplusQueue, server: &Server) -> Finding {
    let SurplusQueue { name, configured, ready, consumers } = queue;
    let what = format!(
        "the state queue exists, but broker.state_queues of this manager is {configured}; it has {ready} waiting \
         messages and {consumers} consumers"
    );
    let (severity, why, cure) = if *consumers == 0 {
        (
            Severity::Warning,
            "no manager reads it: if a service reports to it, managers do not learn that an observer has ended, and \
             start it again"
                .to_owned(),
            "restart all managers: they read every state queue that exists when they connect".to_owned(),
        )
    } else {
        (
            Severity::Info,
            "managers read it as well, because the number may have been reduced while services still used it"
                .to_owned(),
            format!(
                "if services still use the queue, set `[broker] state_queues` of all managers to their number; otherwise, \
                 once it is empty, delete it, the queue with the highest number first: `rabbitmqctl -p {} delete_queue \
                 {name}`",
                server.vhost
            ),
        )
    };
    Finding { code: "state-queue-surplus", severity, subject: format!("queue {name}"), what, why, cure }
}

#[cfg(test)]
mod tests {
    use super::super::Management;
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_surplus_queue_that_no_manager_reads_is_a_warning() {
        let server = Server {
            place: "h:5672".to_owned(),
            vhost: "/".to_owned(),
            version: None,
            guest_over_network: false,
            plain_over_network: false,
            heartbeat: Duration::from_secs(5),
            management: Management::Unset,
        };
        let found = |ready, consumers| {
            let name = "p.state.3".to_owned();
            finding(&SurplusQueue { name, configured: 2, ready, consumers }, &server)
        };
        let unread = found(7, 0);
        assert_eq!((unread.severity, unread.subject.as_str()), (Severity::Warning, "queue p.state.3"));
        assert!(unread.what.contains("is 2; it has 7 waiting messages and 0 consumers"), "{}", unread.what);
        let read = found(0, 2);
        assert_eq!(read.severity, Severity::Info);
        assert!(read.cure.contains("`rabbitmqctl -p / delete_queue p.state.3`"), "{}", read.cure);
    }
}
