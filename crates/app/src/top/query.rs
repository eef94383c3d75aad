//! Which observers the screen shows, and in which order.

/// Which observers are shown: filter, order, number of rows, and pages. A page starts after its cursor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) filter: String,
    pub(super) sort: Sort,
    pub(super) rows: usize,
    /// The cursors of the pages after the first up to the current one, each with the number of observers
    /// before that page.
    pub(super) pages: Vec<(String, usize)>,
}

impl Query {
    /// Whether both queries show the same page, apart from the number of rows.
    pub(super) fn starts_like(&self, other: &Self) -> bool {
        (&self.filter, self.sort, &self.pages) == (&other.filter, other.sort, &other.pages)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Name,
    NameDown,
    Oldest,
    Newest,
    /// The worst first.
    Health,
    /// The most first.
    Restarts,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::Health,
            Self::Health => Self::Restarts,
            Self::Restarts => Self::Newest,
            Self::Newest => Self::Oldest,
            Self::Oldest => Self::NameDown,
            Self::NameDown => Self::Name,
        }
    }
    /// Whether managers do not know this order: the first observers by name are sorted here.
    pub(super) fn is_own(self) -> bool {
        matches!(self, Self::Health | Self::Restarts)
    }
    /// The parameter of the API, and the text on the screen.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Name => ("name", "by name"),
            Self::NameDown => ("-name", "by name, backwards"),
            Self::Newest => ("-created_at", "newest first"),
            Self::Oldest => ("created_at", "oldest first"),
            Self::Health => ("name", "by health"),
            Self::Restarts => ("name", "by restarts"),
        }
    }
}
