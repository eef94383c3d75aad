//! What a manager sends: commands, work messages, questions.

pub(crate) mod commands;
pub(crate) mod log_requests;
pub(crate) mod publish;
pub(crate) mod spans;
pub(crate) mod state_queues;
pub(crate) mod work_queues;
