//! Settings: the node's, and those a room may set for itself.
//!
//! 1. A room's own value goes before the node's.
//! 2. `ttl-min-ms` never exceeds `ttl-max-ms`. A new `ttl-ms` must lie between them; one that was there before the
//!    bounds moved is clamped when used.
//! 3. Several settings change together or not at all.

mod setting;

pub use setting::{integer, Domain, Scope, Setting, Shown, COUNT};

/// One value a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    values: [i64; COUNT],
}

impl Default for Settings {
    fn default() -> Self {
        Self { values: Setting::ALL.map(Setting::default_value) }
    }
}

impl Settings {
    pub fn get(&self, setting: Setting) -> i64 {
        self.values.get(usize::from(setting.code())).copied().unwrap_or_else(|| setting.default_value())
    }

    /// One value, unchecked against the others: see [`Settings::check`].
    pub fn put(&mut self, setting: Setting, value: i64) {
        if let Some(place) = self.values.get_mut(usize::from(setting.code())) {
            *place = value;
        }
    }

    /// Several at once; refused whole (rule 3).
    pub fn set(&mut self, changes: &[(Setting, i64)]) -> Result<(), &'static str> {
        let mut changed = self.clone();
        for (setting, value) in changes {
            changed.put(*setting, *value);
        }
        changed.check(self)?;
        *self = changed;
        Ok(())
    }

    /// Whether these may follow `before` (rule 2).
    pub fn check(&self, before: &Self) -> Result<(), &'static str> {
        if self.get(Setting::TtlMinMs) > self.get(Setting::TtlMaxMs) {
            return Err("ttl-min-ms must not exceed ttl-max-ms");
        }
        let ttl_ms = self.get(Setting::TtlMs);
        if ttl_ms != before.get(Setting::TtlMs) {
            self.check_ttl(ttl_ms)?;
        }
        Ok(())
    }

    fn check_ttl(&self, ttl_ms: i64) -> Result<(), &'static str> {
        if ttl_ms < self.get(Setting::TtlMinMs) || ttl_ms > self.get(Setting::TtlMaxMs) {
            return Err("ttl-ms must lie within ttl-min-ms and ttl-max-ms");
        }
        Ok(())
    }

    /// Whether a room may set this for itself.
    pub fn check_own(&self, setting: Setting, value: i64) -> Result<(), &'static str> {
        if !setting.per_room() {
            return Err("no room has this setting");
        }
        if setting == Setting::TtlMs {
            self.check_ttl(value)?;
        }
        Ok(())
    }

    fn span(&self, setting: Setting) -> u64 {
        unsigned(self.get(setting))
    }

    pub fn ttl_min_ms(&self) -> u64 {
        self.span(Setting::TtlMinMs)
    }

    pub fn ttl_max_ms(&self) -> u64 {
        self.span(Setting::TtlMaxMs)
    }

    pub fn max_id_bytes(&self) -> u64 {
        self.span(Setting::MaxIdBytes)
    }

    pub fn max_meta_bytes(&self) -> u64 {
        self.span(Setting::MaxMetaBytes)
    }

    pub fn max_payload_bytes(&self) -> u64 {
        self.span(Setting::MaxPayloadBytes)
    }

    pub fn cursor_ms(&self) -> u64 {
        self.span(Setting::CursorMs)
    }

    /// None: a lease's own ttl.
    pub fn recovery_grace_ms(&self) -> Option<u64> {
        u64::try_from(self.get(Setting::RecoveryGraceMs)).ok()
    }

    pub fn empty_room_ms(&self) -> u64 {
        self.span(Setting::EmptyRoomMs)
    }

    pub fn reap_slice_us(&self) -> u64 {
        self.span(Setting::ReapSliceUs)
    }

    pub fn shared_events_maxlen(&self) -> u64 {
        self.span(Setting::SharedEventsMaxlen)
    }

    pub fn events_scope(&self) -> Scope {
        Scope::from_value(self.get(Setting::EventsScope))
    }
}

/// What a room sets for itself, sorted; most rooms set nothing and hold no memory for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnPolicy {
    values: Vec<(Setting, i64)>,
}

impl OwnPolicy {
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn get(&self, setting: Setting) -> Option<i64> {
        self.values.iter().find(|(own, _)| *own == setting).map(|(_, value)| *value)
    }

    pub fn set(&mut self, setting: Setting, value: i64) {
        match self.values.binary_search_by_key(&setting, |(own, _)| *own) {
            Ok(place) => {
                if let Some(own) = self.values.get_mut(place) {
                    own.1 = value;
                }
            }
            Err(place) => self.values.insert(place, (setting, value)),
        }
    }

    /// Sets a value, or follows the node again.
    pub fn change(&mut self, setting: Setting, value: Option<i64>) {
        match value {
            Some(value) => self.set(setting, value),
            None => self.clear(setting),
        }
    }

    /// Follows the node again.
    pub fn clear(&mut self, setting: Setting) {
        self.values.retain(|(own, _)| *own != setting);
        if self.values.is_empty() {
            self.values = Vec::new();
        }
    }

    /// In the order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Setting, i64)> + '_ {
        self.values.iter().copied()
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.values.capacity().saturating_mul(size_of::<(Setting, i64)>())
    }
}

/// What holds in a room: its own settings over the node's (rule 1).
#[derive(Clone, Copy)]
pub struct Policy<'a> {
    pub settings: &'a Settings,
    pub own: &'a OwnPolicy,
}

impl Policy<'_> {
    pub fn effective(&self, setting: Setting) -> i64 {
        self.own.get(setting).unwrap_or_else(|| self.settings.get(setting))
    }

    fn span(&self, setting: Setting) -> u64 {
        unsigned(self.effective(setting))
    }

    fn yes(&self, setting: Setting) -> bool {
        self.effective(setting) != 0
    }

    /// Within the bounds of now (rule 2).
    pub fn ttl_ms(&self) -> u64 {
        self.span(Setting::TtlMs).min(self.settings.ttl_max_ms()).max(self.settings.ttl_min_ms())
    }

    pub fn disconnect_ms(&self) -> u64 {
        self.span(Setting::DisconnectMs)
    }

    pub fn failed_ms(&self) -> u64 {
        self.span(Setting::FailedMs)
    }

    pub fn tombstone_ms(&self) -> u64 {
        self.span(Setting::TombstoneMs)
    }

    pub fn require_token(&self) -> bool {
        self.yes(Setting::RequireToken)
    }

    /// Whether OPEN and every session command need a live grant.
    pub fn wants_grants(&self) -> bool {
        self.yes(Setting::DefaultAccess)
    }

    /// 0: exact.
    pub fn precision_ms(&self) -> u64 {
        self.span(Setting::PrecisionMs)
    }

    /// 0: no limit.
    pub fn max_leases(&self) -> u64 {
        self.span(Setting::MaxLeases)
    }

    /// 0: no limit.
    pub fn events_maxlen(&self) -> u64 {
        self.span(Setting::EventsMaxlen)
    }

    /// 0: no limit.
    pub fn retain_count(&self) -> u64 {
        self.span(Setting::RetainCount)
    }

    /// 0: no limit.
    pub fn retain_ms(&self) -> u64 {
        self.span(Setting::RetainMs)
    }

    pub fn dedup_ms(&self) -> u64 {
        self.span(Setting::DedupMs)
    }

    pub fn announce_messages(&self) -> bool {
        self.yes(Setting::AnnounceMessages)
    }

    pub fn log_renewals(&self) -> bool {
        self.yes(Setting::LogRenewals)
    }
}

/// Only `recovery-grace-ms` is ever negative, and it has a getter of its own.
fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_hold_for_new_ttls_and_clamp_old_ones() {
        let mut settings = Settings::default();
        assert!(settings.set(&[(Setting::TtlMinMs, 5_000), (Setting::TtlMaxMs, 4_000)]).is_err());
        assert!(settings.set(&[(Setting::TtlMs, 500)]).is_err());
        assert_eq!(settings, Settings::default());
        assert!(settings.set(&[(Setting::TtlMs, 500), (Setting::TtlMinMs, 1)]).is_ok());
        assert!(settings.set(&[(Setting::TtlMinMs, 60_000)]).is_ok());
        let own = OwnPolicy::default();
        assert_eq!(Policy { settings: &settings, own: &own }.ttl_ms(), 60_000);
        assert!(settings.check_own(Setting::TtlMs, 500).is_err());
        assert!(settings.check_own(Setting::TtlMs, 60_000).is_ok());
        assert!(settings.check_own(Setting::ReapSliceUs, 1).is_err());
    }

    #[test]
    fn own_values_go_first_until_cleared() {
        let settings = Settings::default();
        let mut own = OwnPolicy::default();
        own.set(Setting::MaxLeases, 3);
        own.set(Setting::RequireToken, 1);
        own.set(Setting::MaxLeases, 4);
        assert_eq!(own.iter().collect::<Vec<_>>(), [(Setting::RequireToken, 1), (Setting::MaxLeases, 4)]);
        let policy = Policy { settings: &settings, own: &own };
        assert_eq!((policy.max_leases(), policy.require_token(), policy.failed_ms()), (4, true, 5_000));
        own.clear(Setting::MaxLeases);
        own.clear(Setting::RequireToken);
        assert!(own.is_empty());
        assert_eq!(own.heap_bytes(), 0);
    }

    proptest! {
        #[test]
        fn settings_change_whole_or_not_at_all(
            changes in proptest::collection::vec((0..3u8, 1..10_000i64), 1..4)
        ) {
            let changes: Vec<_> =
                changes.into_iter().map(|(code, value)| (Setting::from_code(code).unwrap(), value)).collect();
            let before = Settings::default();
            let mut after = before.clone();
            if after.set(&changes).is_ok() {
                for (setting, value) in changes.iter().rev().take(1) {
                    prop_assert_eq!(after.get(*setting), *value);
                }
                prop_assert!(after.get(Setting::TtlMinMs) <= after.get(Setting::TtlMaxMs));
            } else {
                prop_assert_eq!(after, before);
            }
        }
    }
}
