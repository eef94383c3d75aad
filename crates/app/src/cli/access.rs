//! Commands about tokens, roles, the audit log, and the managers that this user works with.

use super::{OutputArgs, Watched};
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// List tokens
    #[command(alias = "ls")]
    List {
        /// Also list sessions of the console
        #[arg(long)]
        sessions: bool,
        #[command(flatten)]
        watched: Watched,
    },
    /// Create a token and print it; it is not shown again
    #[command(
        after_help = "Examples:\n  everwatch token create ci --role operator --expires-in 30d > ci.token\n  everwatch token create jane --role operator --namespace team-a > jane.token    only for this namespace"
    )]
    Create {
        /// Name of the owner, as events and the audit log show it
        name: String,
        /// viewer, operator, admin, or a role that you have defined
        #[arg(long)]
        role: String,
        /// How long it is valid; 90d by default
        #[arg(long, value_name = "TIME")]
        expires_in: Option<String>,
    },
    /// Give a token a new secret and print it; the current secret stays valid for a while
    Rotate {
        /// Name or id
        token: String,
        /// How long the current secret stays valid, at most 7d; 1h by default
        #[arg(long, value_name = "TIME")]
        overlap: Option<String>,
        /// How long the token is valid from now on; as before by default
        #[arg(long, value_name = "TIME")]
        expires_in: Option<String>,
    },
    /// Revoke a token: managers refuse it within 5 s
    Revoke {
        /// Name or id
        token: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// List roles
    #[command(alias = "ls")]
    List(Watched),
    /// Print a role, by default in the form that `role apply` reads
    Get {
        /// Name
        role: String,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Create or replace a role from a file
    #[command(after_help = ROLE_EXAMPLE)]
    Apply {
        /// Name
        role: String,
        /// YAML or JSON file; `-`: standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Delete a role that no valid token has
    Delete {
        /// Name
        role: String,
    },
}

const ROLE_EXAMPLE: &str = "Example:
  everwatch role apply team-a -f - <<'END'
  grants:
    - verbs: [\"observers:*\", \"specs:read\", \"logs:read\"]
      pools: [team-a]
    - verbs: [\"kinds:read\", \"status:read\"]
  END";

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// List the requests that changed something or were refused, the newest first
    #[command(alias = "ls")]
    List {
        /// Only requests of this principal
        #[arg(long)]
        principal: Option<String>,
        /// Number of requests to show
        #[arg(long, value_name = "COUNT", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        watched: Watched,
    },
}

/// Contexts: managers with the tokens that this user has for them.
#[derive(Debug, Subcommand)]
pub(crate) enum Context {
    /// List contexts; the current one has a *
    #[command(alias = "ls")]
    List,
    /// Use a context from now on
    Use {
        /// Name
        context: String,
    },
    /// Delete a context and its token
    Delete {
        /// Name
        context: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Login {
    /// Name of the context; the host of the manager by default
    #[arg(long)]
    pub(crate) context: Option<String>,
}

impl Login {
    pub(crate) const EXAMPLES: &str = "Examples:
  everwatch login --server https://everwatch.example.org    asks for the token
  everwatch login --server https://everwatch.example.org < ci.token";
}
