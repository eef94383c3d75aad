//! Two-stage shutdown: ask, then insist.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels the first token at the first SIGTERM or Ctrl-C, the second at the second; returns then.
///
/// # Errors
/// If the signals cannot be heard.
pub async fn on_signals(soft: CancellationToken, hard: CancellationToken) -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    for token in [soft, hard] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
    }
    Ok(())
}
