//! Fetches the endpoints and keys of the identity provider: at the start, in intervals, and when a token names another key.

use crate::RunError;
use crate::context::oidc::IdentityProvider;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(provider: Arc<IdentityProvider>, stop: CancellationToken) -> Result<(), RunError> {
    while stop.run_until_cancelled(provider.renew()).await.is_some() {}
    Ok(())
}
