//! The table of settings.
//!
//! To add one: a variant, its place in [`Setting::ALL`], a row in [`Setting::row`]. Everything else, from CONFIG SET to
//! the arguments of `loadmodule`, follows.

/// The numbers are stored in rooms: never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Setting {
    TtlMs = 0,
    TtlMinMs = 1,
    TtlMaxMs = 2,
    DisconnectMs = 3,
    FailedMs = 4,
    TombstoneMs = 5,
    RequireToken = 6,
    PrecisionMs = 7,
    MaxLeases = 8,
    MaxIdBytes = 9,
    MaxMetaBytes = 10,
    RecoveryGraceMs = 11,
    ReapSliceUs = 12,
    EventsMaxlen = 13,
    SharedEventsMaxlen = 14,
    EventsScope = 15,
    LogRenewals = 16,
    EmptyRoomMs = 17,
    DefaultAccess = 18,
    RetainCount = 19,
    RetainMs = 20,
    DedupMs = 21,
    AnnounceMessages = 22,
    MaxPayloadBytes = 23,
    CursorMs = 24,
}

/// How many settings there are.
pub const COUNT: usize = 25;

/// What a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// This number or more.
    AtLeast(i64),
    /// `no` or `yes`, kept as 0 and 1.
    YesNo,
    /// One of these words, kept as its place among them.
    Words(&'static [&'static str]),
}

/// A value as people read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Int(i64),
    Word(&'static str),
}

#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    /// What it is called in a room's policy.
    room_name: &'static str,
    domain: Domain,
    default: i64,
    per_room: bool,
    only_at_load: bool,
}

impl Row {
    const fn new(name: &'static str, domain: Domain, default: i64) -> Self {
        Self { name, room_name: name, domain, default, per_room: false, only_at_load: false }
    }

    const fn number(name: &'static str, default: i64) -> Self {
        Self::new(name, Domain::AtLeast(0), default)
    }

    /// A number of which 0 makes no sense.
    const fn positive(name: &'static str, default: i64) -> Self {
        Self::new(name, Domain::AtLeast(1), default)
    }

    const fn per_room(self) -> Self {
        Self { per_room: true, ..self }
    }

    const fn only_at_load(self) -> Self {
        Self { only_at_load: true, ..self }
    }
}

const YES_NO: &[&str] = &["no", "yes"];

/// Where presence events go: the room's stream, its hash tag's, or one a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Room,
    Tag,
    Node,
}

impl Scope {
    const WORDS: &'static [&'static str] = &["room", "tag", "node"];

    /// The value is the word's place.
    pub fn from_value(value: i64) -> Self {
        match value {
            1 => Self::Tag,
            2 => Self::Node,
            _ => Self::Room,
        }
    }
}

/// Whether anyone may be in a room, or only who has a grant.
const ACCESS: &[&str] = &["open", "granted"];

impl Setting {
    pub const ALL: [Self; COUNT] = [
        Self::TtlMs,
        Self::TtlMinMs,
        Self::TtlMaxMs,
        Self::DisconnectMs,
        Self::FailedMs,
        Self::TombstoneMs,
        Self::RequireToken,
        Self::PrecisionMs,
        Self::MaxLeases,
        Self::MaxIdBytes,
        Self::MaxMetaBytes,
        Self::RecoveryGraceMs,
        Self::ReapSliceUs,
        Self::EventsMaxlen,
        Self::SharedEventsMaxlen,
        Self::EventsScope,
        Self::LogRenewals,
        Self::EmptyRoomMs,
        Self::DefaultAccess,
        Self::RetainCount,
        Self::RetainMs,
        Self::DedupMs,
        Self::AnnounceMessages,
        Self::MaxPayloadBytes,
        Self::CursorMs,
    ];

    const fn row(self) -> Row {
        match self {
            Self::TtlMs => Row::positive("ttl-ms", 30_000).per_room(),
            Self::TtlMinMs => Row::positive("ttl-min-ms", 1_000),
            Self::TtlMaxMs => Row::positive("ttl-max-ms", 3_600_000),
            Self::DisconnectMs => Row::number("disconnect-ms", 10_000).per_room(),
            Self::FailedMs => Row::number("failed-ms", 5_000).per_room(),
            Self::TombstoneMs => Row::number("tombstone-ms", 600_000).per_room(),
            Self::RequireToken => Row::new("require-token", Domain::YesNo, 0).per_room(),
            Self::PrecisionMs => Row::number("precision-ms", 0).per_room(),
            Self::MaxLeases => Row::number("max-leases", 0).per_room(),
            Self::MaxIdBytes => Row::number("max-id-bytes", 255),
            Self::MaxMetaBytes => Row::number("max-meta-bytes", 4_096),
            Self::RecoveryGraceMs => Row::new("recovery-grace-ms", Domain::AtLeast(-1), -1),
            Self::ReapSliceUs => Row::positive("reap-slice-us", 500),
            Self::EventsMaxlen => Row::number("events-maxlen", 10_000).per_room(),
            Self::SharedEventsMaxlen => Row::number("shared-events-maxlen", 1_000_000),
            Self::EventsScope => Row::new("events-scope", Domain::Words(Scope::WORDS), 0).only_at_load(),
            Self::LogRenewals => Row::new("log-renewals", Domain::YesNo, 0).per_room(),
            Self::EmptyRoomMs => Row::number("empty-room-ms", 3_600_000),
            Self::DefaultAccess => {
                Row { room_name: "access", ..Row::new("default-access", Domain::Words(ACCESS), 0).per_room() }
            }
            Self::RetainCount => Row::number("retain-count", 10_000).per_room(),
            Self::RetainMs => Row::number("retain-ms", 0).per_room(),
            Self::DedupMs => Row::number("dedup-ms", 600_000).per_room(),
            Self::AnnounceMessages => Row::new("announce-messages", Domain::YesNo, 0).per_room(),
            Self::MaxPayloadBytes => Row::number("max-payload-bytes", 65_536),
            Self::CursorMs => Row::positive("cursor-ms", 604_800_000),
        }
    }

    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What it is called in a room's policy.
    pub fn room_name(self) -> &'static str {
        self.row().room_name
    }

    pub fn domain(self) -> Domain {
        self.row().domain
    }

    pub fn default_value(self) -> i64 {
        self.row().default
    }

    /// Whether a room may set it for itself.
    pub fn per_room(self) -> bool {
        self.row().per_room
    }

    pub fn only_at_load(self) -> bool {
        self.row().only_at_load
    }

    /// The number it is stored as.
    pub fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.code() == code)
    }

    /// One that a room may have, by what it is called there.
    pub fn from_room_name(name: &[u8]) -> Option<Self> {
        let mut own = Self::ALL.into_iter().filter(|setting| setting.per_room());
        own.find(|setting| setting.room_name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// By its name, in any case.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// The value a text stands for; the error says what is wanted.
    pub fn parse(self, text: &[u8]) -> Result<i64, &'static str> {
        match self.domain() {
            Domain::AtLeast(least) => {
                let number = if text == b"-1" { Some(-1) } else { integer(text).and_then(|n| i64::try_from(n).ok()) };
                number.filter(|number| *number >= least).ok_or("value is not an integer or out of range")
            }
            Domain::YesNo => place(YES_NO, text).ok_or("value must be yes or no"),
            Domain::Words(words) => place(words, text).ok_or(match self {
                Self::EventsScope => "value must be room, tag or node",
                _ => "value must be open or granted",
            }),
        }
    }

    /// Whether `value` could have come from [`Setting::parse`]: for values read from a file.
    pub fn allows(self, value: i64) -> bool {
        match self.domain() {
            Domain::AtLeast(least) => value >= least,
            Domain::YesNo => word(YES_NO, value).is_some(),
            Domain::Words(words) => word(words, value).is_some(),
        }
    }

    pub fn show(self, value: i64) -> Shown {
        let word = match self.domain() {
            Domain::AtLeast(_) => None,
            Domain::YesNo => word(YES_NO, value),
            Domain::Words(words) => word(words, value),
        };
        word.map_or(Shown::Int(value), Shown::Word)
    }
}

/// The contract's one spelling of an integer: 0 … 2^63-1 in plain decimal digits.
pub fn integer(text: &[u8]) -> Option<u64> {
    if matches!(text, [] | [b'0', _, ..]) {
        return None;
    }
    let number = text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })?;
    i64::try_from(number).is_ok().then_some(number)
}

fn place(words: &[&str], text: &[u8]) -> Option<i64> {
    let place = words.iter().position(|word| word.as_bytes().eq_ignore_ascii_case(text))?;
    i64::try_from(place).ok()
}

fn word(words: &[&'static str], place: i64) -> Option<&'static str> {
    words.get(usize::try_from(place).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Settings;
    use super::*;

    #[test]
    fn the_table_is_complete() {
        for (index, setting) in Setting::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(setting.code()), index);
            assert_eq!(Setting::from_code(setting.code()), Some(setting));
            assert_eq!(Setting::from_name(setting.name().to_ascii_uppercase().as_bytes()), Some(setting));
            assert_eq!(Settings::default().get(setting), setting.default_value());
            assert!(setting.allows(setting.default_value()));
        }
        assert_eq!(Setting::from_code(COUNT as u8), None);
    }

    #[test]
    fn values_have_one_spelling_and_words_any_case() {
        for bad in ["", "+5", "05", " 5", "1e3", "1.0", "-5", "-0", "9223372036854775808", "default"] {
            assert!(Setting::TtlMs.parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(Setting::TtlMs.parse(b"0").is_err());
        assert!(Setting::TtlMs.parse(b"-1").is_err());
        assert_eq!(Setting::DisconnectMs.parse(b"0"), Ok(0));
        assert_eq!(Setting::RecoveryGraceMs.parse(b"-1"), Ok(-1));
        assert!(Setting::RecoveryGraceMs.parse(b"-2").is_err());
        assert_eq!(Setting::RequireToken.parse(b"YES"), Ok(1));
        assert!(Setting::RequireToken.parse(b"1").is_err());
        assert_eq!(Setting::EventsScope.parse(b"Node"), Ok(2));
        assert_eq!(Setting::EventsScope.show(2), Shown::Word("node"));
        assert_eq!(Setting::RequireToken.show(0), Shown::Word("no"));
        assert_eq!(Setting::TtlMs.show(5), Shown::Int(5));
        assert!(!Setting::EventsScope.allows(3));
        assert!(!Setting::TtlMs.allows(0));
    }

    proptest! {
        #[test]
        fn an_integer_is_what_prints_back(number in 0..=i64::MAX as u64) {
            prop_assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }

        #[test]
        fn any_other_text_is_no_integer(text in proptest::collection::vec(any::<u8>(), 0..24)) {
            if let Some(number) = integer(&text) {
                prop_assert_eq!(number.to_string().into_bytes(), text);
            }
        }
    }
}
