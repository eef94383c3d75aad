//! A service as the managers keep it: born, heard of, suspected, ended.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::message::{Beat, Birth, Intent};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One incarnation of a service process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceRow {
    pub id: ServiceId,
    /// Counts the changes of this row.
    pub version: i64,
    pub birth: Birth,
    pub born_at: Timestamp,
    pub modified_at: Timestamp,
    /// When something was last heard of it, by the managers' clock.
    pub heard_at: Timestamp,
    /// Its newest beat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beat: Option<Beat>,
    /// When it last told all that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed_at: Option<Timestamp>,
    /// Since when it is suspected: silence, or a younger one of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspect_since: Option<Timestamp>,
    /// How and when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub at: Timestamp,
    pub how: Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It said goodbye.
    Gone,
    /// The broker says that its session is gone.
    Lost,
}

/// One word for where a service stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    Active,
    Cordoned,
    Draining,
    Suspect,
    Lost,
    Gone,
}

impl ServiceState {
    /// Those whose session is not over.
    pub const LIVING: [Self; 4] = [Self::Active, Self::Cordoned, Self::Draining, Self::Suspect];

    /// The word as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Suspect => "suspect",
            Self::Lost => "lost",
            Self::Gone => "gone",
        }
    }
    /// Whether its session is over.
    #[must_use]
    pub fn is_over(self) -> bool {
        match self {
            Self::Lost | Self::Gone => true,
            Self::Active | Self::Cordoned | Self::Draining | Self::Suspect => false,
        }
    }
}

impl ServiceRow {
    /// A service that has just reported its birth.
    #[must_use]
    pub fn born(id: ServiceId, birth: Birth, at: Timestamp, now: Timestamp) -> Self {
        Self {
            id,
            version: 1,
            birth,
            born_at: at,
            modified_at: now,
            heard_at: now,
            beat: None,
            listed_at: None,
            suspect_since: None,
            end: None,
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> ServiceState {
        match (self.end, self.suspect_since, self.beat.as_ref().map(|beat| beat.state)) {
            (Some(End { how: Ended::Gone, .. }), _, _) => ServiceState::Gone,
            (Some(End { how: Ended::Lost, .. }), _, _) => ServiceState::Lost,
            (None, Some(_), _) => ServiceState::Suspect,
            (None, None, Some(Intent::Cordoned)) => ServiceState::Cordoned,
            (None, None, Some(Intent::Draining)) => ServiceState::Draining,
            (None, None, Some(Intent::Active) | None) => ServiceState::Active,
        }
    }

    /// The slots it has: by its newest beat, else by its birth.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.beat.as_ref().map_or(self.birth.capacity, |beat| beat.capacity)
    }

    /// The slots in use, by its newest beat.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.beat.as_ref().map_or(0, |beat| beat.held)
    }

    /// A sign of life. Beats may arrive late or twice; the highest number stands.
    pub fn on_beat(&mut self, beat: &Beat, now: Timestamp) -> bool {
        let newer = self.beat.as_ref().is_none_or(|known| beat.seq > known.seq);
        if !newer || self.end.is_some() {
            return false;
        }
        self.beat = Some(beat.clone());
        self.heard_at = now;
        self.suspect_since = None;
        true
    }

    /// It has told all that it holds.
    pub fn on_list(&mut self, now: Timestamp) -> bool {
        let lives = self.end.is_none();
        if lives {
            self.listed_at = Some(now);
        }
        lives
    }

    /// It said goodbye: final, whatever comes later.
    pub fn on_gone(&mut self, now: Timestamp) -> bool {
        self.end_as(Ended::Gone, now)
    }

    /// The broker says that its session is gone.
    pub fn on_session_gone(&mut self, now: Timestamp) -> bool {
        self.end.is_none() && self.end_as(Ended::Lost, now)
    }

    /// The broker says that its session lives, whatever it does not say.
    pub fn on_session_alive(&mut self, now: Timestamp) {
        self.heard_at = now;
        self.modified_at = now;
    }

    /// A younger incarnation has its name, or it was silent for `lost_after`.
    pub fn suspect(&mut self, now: Timestamp) -> bool {
        if self.end.is_some() || self.suspect_since.is_some() {
            return false;
        }
        self.suspect_since = Some(now);
        self.modified_at = now;
        true
    }

    /// Whether its silence has lasted `lost_after`.
    #[must_use]
    pub fn is_silent(&self, now: Timestamp, lost_after: Duration) -> bool {
        self.end.is_none() && now.since(self.heard_at) >= lost_after
    }

    fn end_as(&mut self, how: Ended, now: Timestamp) -> bool {
        if self.end.is_some_and(|end| end.how == Ended::Gone) {
            return false;
        }
        self.end = Some(End { at: now, how });
        self.modified_at = now;
        true
    }
}
