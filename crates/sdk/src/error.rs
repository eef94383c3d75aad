//! The errors of observers.

use std::fmt;

/// Any error: the code starts again as the retry policy of the observer says. An error that contains a [`Permanent`]
/// ends the observer instead.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// An error that another attempt cannot cure, such as a wrong password: the observer becomes `Failed` at once.
///
/// ```
/// use everwatch::{Error, OrPermanent as _, Permanent};
///
/// fn port(text: &str) -> Result<u16, Error> {
///     let port = text.parse().or_permanent()?;
///     if port == 0 {
///         return Err(Permanent::new("port 0 cannot be connected to").into());
///     }
///     Ok(port)
/// }
/// assert!(port("none").unwrap_err().is::<Permanent>());
/// ```
#[derive(Debug)]
pub struct Permanent(Error);

impl Permanent {
    /// Makes an error permanent; a text is an error too.
    pub fn new(error: impl Into<Error>) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for Permanent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Permanent {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// Makes the error of a result permanent, for use with `?`.
pub trait OrPermanent<T> {
    /// The value, or the error as a [`Permanent`].
    ///
    /// # Errors
    /// If the result is one.
    fn or_permanent(self) -> Result<T, Permanent>;
}

impl<T, E: Into<Error>> OrPermanent<T> for Result<T, E> {
    fn or_permanent(self) -> Result<T, Permanent> {
        self.map_err(Permanent::new)
    }
}

/// Whether the error, or an error that caused it, is permanent.
pub(crate) fn is_permanent(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(<dyn std::error::Error>::is::<Permanent>)
}
