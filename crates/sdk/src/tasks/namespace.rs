//! The namespace of running code.

use crate::tasks::context::Context;

impl Context {
    /// The observer's namespace. Observers of other namespaces may have the same name.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// assert_eq!(ctx.namespace(), "default");
    /// # Ok(())
    /// # });
    /// ```
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.0.work.namespace.as_str()
    }
}
