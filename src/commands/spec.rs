//! What a command tells about itself. A command's row is the only source of its registration: key specs, flags, ACL
//! categories, COMMAND DOCS (redis-cli's hints come from it) and LEASE.HELP.

use std::fmt::Write;

use redis_module::raw;

use crate::server::entry::CommandEntry;

pub struct CommandSpec {
    /// In lower case, as the server's own tables have it.
    pub name: &'static str,
    pub summary: &'static str,
    pub complexity: &'static str,
    /// The first version with the command.
    pub since: &'static str,
    /// As Redis counts: the name included, negative when more may follow.
    pub arity: i32,
    /// As `RedisModule_CreateCommand` takes them.
    pub flags: &'static str,
    /// ACL categories besides `lease` and those that follow from the flags.
    pub categories: &'static str,
    pub key: KeyAccess,
    pub args: &'static [Arg],
    pub entry: CommandEntry,
}

/// What a command does to its key, which is always the first argument, the room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeyAccess {
    /// The command takes no key.
    None,
    /// Tells something of the room.
    Read,
    /// Changes the room, or creates it, and tells something of it.
    Update,
    /// Takes something out of the room.
    Remove,
}

impl KeyAccess {
    /// The server takes one of "read only" and "read and write", and at most one of "update" and "delete".
    pub fn flags(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
            Self::Update => {
                raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE
            }
            Self::Remove => {
                raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ArgKind {
    Key,
    Text,
    Integer,
    UnixTime,
    /// A token alone.
    Flag,
    OneOf,
    Block,
}

/// One argument, or a group of them.
#[derive(Clone, Copy)]
pub struct Arg {
    pub name: &'static str,
    pub kind: ArgKind,
    /// The word before the argument, or the argument itself if it is a flag.
    pub token: Option<&'static str>,
    pub optional: bool,
    pub repeated: bool,
    /// Of a group.
    pub args: &'static [Arg],
}

impl Arg {
    const fn new(name: &'static str, kind: ArgKind) -> Self {
        Self { name, kind, token: None, optional: false, repeated: false, args: &[] }
    }

    /// The room, first argument of every command with a key.
    pub const ROOM: Self = Self::new("room", ArgKind::Key);

    pub const fn text(name: &'static str) -> Self {
        Self::new(name, ArgKind::Text)
    }

    pub const fn int(name: &'static str) -> Self {
        Self::new(name, ArgKind::Integer)
    }

    pub const fn unix_time(name: &'static str) -> Self {
        Self::new(name, ArgKind::UnixTime)
    }

    pub const fn flag(name: &'static str, token: &'static str) -> Self {
        Self { token: Some(token), ..Self::new(name, ArgKind::Flag) }
    }

    pub const fn one_of(name: &'static str, args: &'static [Arg]) -> Self {
        Self { args, ..Self::new(name, ArgKind::OneOf) }
    }

    pub const fn block(name: &'static str, args: &'static [Arg]) -> Self {
        Self { args, ..Self::new(name, ArgKind::Block) }
    }

    pub const fn token(self, token: &'static str) -> Self {
        Self { token: Some(token), ..self }
    }

    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    pub const fn repeated(self) -> Self {
        Self { repeated: true, ..self }
    }
}

impl CommandSpec {
    /// `LEASE.OPEN room user [DEVICE device] …`
    pub fn syntax(&self) -> String {
        let mut line = self.name.to_ascii_uppercase();
        for arg in self.args {
            line.push(' ');
            write_arg(&mut line, arg);
        }
        line
    }
}

fn write_arg(line: &mut String, arg: &Arg) {
    if arg.optional {
        line.push('[');
    }
    write_once(line, arg);
    if arg.repeated {
        line.push_str(" [");
        write_once(line, arg);
        line.push_str(" ...]");
    }
    if arg.optional {
        line.push(']');
    }
}

fn write_once(line: &mut String, arg: &Arg) {
    let separator = if arg.kind == ArgKind::OneOf { "|" } else { " " };
    line.push_str(arg.token.unwrap_or_default());
    if arg.kind == ArgKind::Flag {
        return;
    }
    if arg.token.is_some() {
        line.push(' ');
    }
    if arg.args.is_empty() {
        let _ = write!(line, "{}", arg.name);
    }
    for (index, part) in arg.args.iter().enumerate() {
        if index > 0 {
            line.push_str(separator);
        }
        write_arg(line, part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syntax_of(args: &[Arg]) -> String {
        let mut line = String::new();
        for arg in args {
            line.push(' ');
            write_arg(&mut line, arg);
        }
        line
    }

    #[test]
    fn syntax_reads_like_the_servers_own() {
        const ITEM: &[Arg] = &[Arg::text("session"), Arg::int("epoch")];
        const CHOICE: &[Arg] = &[Arg::flag("get", "GET"), Arg::unix_time("unix-ms").token("SET")];
        assert_eq!(syntax_of(&[Arg::ROOM, Arg::text("device").token("DEVICE").optional()]), " room [DEVICE device]");
        assert_eq!(syntax_of(&[Arg::block("item", ITEM).repeated()]), " session epoch [session epoch ...]");
        assert_eq!(syntax_of(&[Arg::one_of("what", CHOICE)]), " GET|SET unix-ms");
        assert_eq!(syntax_of(&[Arg::flag("nx", "NX").optional()]), " [NX]");
    }
}
