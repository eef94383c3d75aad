//! Measuring Everwatch.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Measure this RabbitMQ instead of the configured one
    #[arg(long)]
    pub(crate) broker: Option<String>,
    /// Use this empty PostgreSQL database instead of temporary SQLite files
    #[arg(long)]
    pub(crate) store: Option<String>,
    /// Run only these measurements (comma-separated)
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// Observers that are created to measure the rate of creates
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(100..=200_000))]
    pub(crate) creates: u32,
    /// Number of observers that the killed service holds (comma-separated)
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 10_000],
          value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub(crate) failover: Vec<u32>,
    /// How many times a service is killed; the median is reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=25))]
    pub(crate) rounds: u32,
    /// Number of idle services, all in one process (comma-separated)
    #[arg(long, value_delimiter = ',', default_values_t = [150], value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub(crate) services: Vec<u32>,
    /// Number of idle observers
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=200_000))]
    pub(crate) idle: u32,
    /// Shell command that kills the broker, starts it again and returns when it accepts connections: also measure
    /// the recovery from that
    #[arg(long, value_name = "COMMAND", required_if_eq("only", "restart"))]
    pub(crate) restart: Option<String>,
    /// Number of observers on five services when the broker is restarted (comma-separated)
    #[arg(long, value_delimiter = ',', default_values_t = [10_000], value_parser = clap::value_parser!(u32).range(100..=200_000))]
    pub(crate) restart_observers: Vec<u32>,
    /// Number of idle services, all in one process, when the broker is restarted (comma-separated)
    #[arg(long, value_delimiter = ',', default_values_t = [150], value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub(crate) restart_services: Vec<u32>,
    /// Output format
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub(crate) output: BenchOutput,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Creates,
    Failover,
    Idle,
    Services,
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchOutput {
    Table,
    Json,
}
