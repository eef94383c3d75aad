//! The members of a definition.

/// The members of a definition.
pub const MEMBERS: [&str; 19] = [
    "name",
    "namespace",
    "kind",
    "spec",
    "pool",
    "labels",
    "retry",
    "overlap",
    "grace",
    "on_full",
    "priority",
    "weight",
    "limits",
    "start_at",
    "finish_at",
    "windows",
    "schedule",
    "start_within",
    "attempt_timeout",
];

/// A value of a member that is an object or a list.
pub(super) fn example(member: &str) -> Option<&'static str> {
    Some(match member {
        "labels" => r#"{"team": "prices"}"#,
        "retry" => r#"{"kind": "fixed", "every": "10s"}"#,
        "limits" => r#"["account-42"]"#,
        "windows" => r#"{"time_zone": "UTC", "open": [{"days": "mon-fri", "from": "09:30", "to": "16:00"}]}"#,
        "schedule" => r#"{"cron": "*/5 * * * *"}"#,
        _ => return None,
    })
}

/// What another value of the member is for, after its example.
pub(super) fn alternative(member: &str) -> &'static str {
    match member {
        "retry" => r#", or {"kind": "intervals", "delays": []} to retry never"#,
        _ => "",
    }
}
