//! The arguments of `everwatch conformance`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// Shell command that runs the service to check; it must offer the kind `conformance`
    #[arg(long, value_name = "COMMAND", required_unless_present = "list")]
    pub(crate) command: Option<String>,
    /// Use this RabbitMQ instead of the configured one (one node, without TLS)
    #[arg(long, value_name = "URL")]
    pub(crate) broker: Option<String>,
    /// Check only these rules (comma-separated)
    #[arg(long = "rule", value_name = "NAME", value_delimiter = ',')]
    pub(crate) rules: Vec<String>,
    /// List the rules without checking them
    #[arg(long)]
    pub(crate) list: bool,
}

impl Conformance {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch conformance --command 'python worker.py' --broker amqp://guest:guest@127.0.0.1:5672/%2f
  everwatch conformance --command ./worker --rule confirm-before-ack,silent-broker
  everwatch conformance --list

Exit codes: 0 all rules are followed, 1 a rule is broken, 2 wrong usage.
docs/protocol-for-services.md describes the protocol, and what the kind `conformance` must do.";
}
