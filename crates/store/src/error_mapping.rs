//! Maps a database error to what the caller should do: retry, ask an operator, or distrust the data.

use crate::port::StoreError;
use rustls::CertificateError;
use sqlx::error::DatabaseError;
use sqlx::migrate::MigrateError;

/// Any error of a statement or a connection.
pub(crate) fn failure(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(error) => told(error.as_ref()),
        sqlx::Error::Configuration(_) | sqlx::Error::InvalidArgument(_) => {
            // The error text may quote the URL, including the password.
            StoreError::Refused("the database URL cannot be read: check its form and its parameters".into())
        }
        sqlx::Error::Migrate(error) => migration(*error),
        sqlx::Error::RowNotFound
        | sqlx::Error::TypeNotFound { .. }
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Encode(_)
        | sqlx::Error::Decode(_) => StoreError::Corrupt(error.to_string()),
        sqlx::Error::Tls(why) => {
            StoreError::Unavailable(format!("no TLS connection: {why}; check sslmode in the database URL"))
        }
        sqlx::Error::Io(why) => StoreError::Unavailable(format!("{why}{}", io_cure(&why))),
        other => StoreError::Unavailable(other.to_string()),
    }
}

/// What to do about an error of the connection, which the error itself does not say.
fn io_cure(error: &std::io::Error) -> &'static str {
    use rustls::Error::InvalidCertificate;
    match error.get_ref().and_then(|content| content.downcast_ref()) {
        Some(InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "; an unknown authority issued the server's certificate: name the file of its CA with sslrootcert in the \
             database URL"
        }
        Some(InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => "; use the host name of the server's certificate in the database URL",
        Some(InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })) => {
            "; renew the server's certificate, or correct the clock of this machine"
        }
        None if error.kind() == std::io::ErrorKind::NotFound => {
            "; a file that the database URL names is missing: sslrootcert, sslcert, sslkey or the socket"
        }
        _ => "",
    }
}

/// A migration that did not go through.
pub(crate) fn migration(error: MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => failure(error),
        MigrateError::VersionMissing(version)
        | MigrateError::VersionMismatch(version)
        | MigrateError::VersionNotPresent(version)
        | MigrateError::VersionTooNew(version, _)
        | MigrateError::VersionTooOld(version, _) => StoreError::Refused(format!(
            "unknown schema version {version}: another version of Everwatch has written this database; \
             run that version or a newer one"
        )),
        other => StoreError::Refused(format!("the database's tables cannot be brought up to date: {other}")),
    }
}

/// Maps an error that the database itself returned. A SQLSTATE has five characters; SQLite's codes are short
/// numbers.
fn told(error: &dyn DatabaseError) -> StoreError {
    let code = error.code().unwrap_or_default();
    let said = error.message();
    if code.len() == 5 { sqlstate(&code, said) } else { sqlite_code(code.parse().unwrap_or(1), said) }
}

fn sqlstate(code: &str, said: &str) -> StoreError {
    let cure = match code {
        "3D000" => "create the database, or correct its name in the database URL",
        "3F000" => "create the schema, or correct the search_path in the database URL",
        "42501" => "give the user of the database URL the right to create and change tables there",
        _ if code.starts_with("28") && said.contains("certificate") => {
            "name the client certificate and its key with sslcert and sslkey in the database URL"
        }
        _ if code.starts_with("28") && said.contains("no encryption") => {
            "set sslmode=verify-full and sslrootcert in the database URL"
        }
        _ if code.starts_with("28") => "check the user and the password of the database URL",
        // Temporary conditions: standby, database closed, deadlock, resources, operator intervention, lost
        // connection, lock.
        "25006" | "55000" | "55P03" => return StoreError::Unavailable(said.into()),
        _ if ["08", "40", "53", "57", "58"].iter().any(|class| code.starts_with(class)) => {
            return StoreError::Unavailable(said.into());
        }
        _ => "this is not expected; see the database's log",
    };
    StoreError::Refused(format!("the database refuses ({code}): {said}; {cure}"))
}

fn sqlite_code(code: i32, said: &str) -> StoreError {
    let cure = match code & 0xff {
        // Temporary: busy, locked, out of memory, interrupted, I/O error, disk full, schema changed.
        5 | 6 | 7 | 9 | 10 | 13 | 15 | 17 => return StoreError::Unavailable(said.into()),
        3 | 8 | 14 => "give this program the right to write the file and its directory",
        11 | 26 => "restore the file from a backup, or name another one",
        _ => "this is not expected",
    };
    StoreError::Refused(format!("SQLite refuses ({code}): {said}; {cure}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_worth_another_try_and_what_does_not_names_its_cure() {
        for code in ["40P01", "57P03", "53300", "08006", "25006"] {
            assert!(matches!(sqlstate(code, "x"), StoreError::Unavailable(_)), "{code}");
        }
        for (code, cure) in [("28P01", "password"), ("3D000", "create the database"), ("42501", "right")] {
            let text = sqlstate(code, "x").to_string();
            assert!(text.contains(cure), "{text}");
        }
        assert!(matches!(sqlite_code(517, "busy"), StoreError::Unavailable(_)));
        assert!(matches!(sqlite_code(14, "cannot open"), StoreError::Refused(_)));
    }

    #[test]
    fn a_bad_url_is_refused_without_being_quoted() {
        let error = sqlx::Error::Configuration("postgres://u:secret@h".into());
        assert!(!failure(error).to_string().contains("secret"));
    }
}
