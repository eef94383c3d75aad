//! What stands between the header and the message: the lists, or a view in place of them.

use super::feed::Feed;
use super::timeline::TimelineView;

#[derive(Debug)]
pub(super) enum Body {
    Lists,
    Feed(Feed),
    Timeline(TimelineView),
}

impl Body {
    pub(super) fn resize(&mut self, room: (usize, usize)) {
        match self {
            Self::Lists => {}
            Self::Feed(feed) => feed.resize(room),
            Self::Timeline(timeline) => timeline.resize(room),
        }
    }
}
