//! Entries of a room's message log (docs/concepts.md): a plain stream that any client reads.

use super::effect::Gen;
use super::id::Id;

#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub seq: u64,
    pub gen: Gen,
    pub id: Box<[u8]>,
    pub user: Id,
    /// None for a message that a server posted on behalf of a user.
    pub sender: Option<Sender>,
    /// Unix ms.
    pub at: u64,
    pub payload: Box<[u8]>,
}

/// The lease a message was sent from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sender {
    pub device: Id,
    pub session: Id,
    pub epoch: u64,
}

impl Message {
    /// Hands every field that applies to `put`, in the order of the contract.
    pub fn fields(&self, put: &mut impl FnMut(&'static str, &[u8])) {
        put("id", &self.id);
        put("user", self.user.as_bytes());
        if let Some(sender) = &self.sender {
            put("device", sender.device.as_bytes());
            put("session", sender.session.as_bytes());
            put("epoch", itoa::Buffer::new().format(sender.epoch).as_bytes());
        }
        put("at", itoa::Buffer::new().format(self.at).as_bytes());
        put("gen", self.gen.text().as_bytes());
        put("payload", &self.payload);
    }
}
