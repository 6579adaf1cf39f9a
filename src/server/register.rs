//! Registers commands from their rows.

use std::ffi::{c_char, c_int, CString};
use std::ptr::null;

use redis_module::raw;

use super::api::{api, has_api, Ctx, OK};
use crate::commands::spec::{Arg, ArgKind, CommandSpec, KeyAccess};

/// The ACL category of all commands of the module, where a module may have its own.
const CATEGORY: &str = "lease";

/// The layout of the structures below; the C header's constant of the same content is not linked in.
static LAYOUT: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// Registers the commands; the error names the one that was refused.
pub fn register(ctx: Ctx, commands: &[&CommandSpec]) -> Result<(), String> {
    let own_category = add_category(ctx);
    for spec in commands {
        register_one(ctx, spec, own_category).ok_or_else(|| format!("the server refused the command {}", spec.name))?;
    }
    Ok(())
}

fn add_category(ctx: Ctx) -> bool {
    if !has_api!(RedisModule_AddACLCategory) {
        return false;
    }
    let name = c_string(CATEGORY);
    // SAFETY: both are live.
    unsafe { api!(RedisModule_AddACLCategory)(ctx.as_ptr(), name.as_ptr()) == OK }
}

fn register_one(ctx: Ctx, spec: &CommandSpec, own_category: bool) -> Option<()> {
    let (name, flags) = (c_string(spec.name), c_string(spec.flags));
    let key = c_int::from(spec.key != KeyAccess::None);
    // SAFETY: all are live; the server copies the texts.
    let created = unsafe {
        api!(RedisModule_CreateCommand)(ctx.as_ptr(), name.as_ptr(), Some(spec.entry), flags.as_ptr(), key, key, key)
    };
    if created != OK {
        return None;
    }
    // SAFETY: the command exists by now.
    let command = unsafe { api!(RedisModule_GetCommand)(ctx.as_ptr(), name.as_ptr()) };
    set_categories(command, spec, own_category)?;
    set_info(command, spec)
}

/// Where the server has the call (7.2 on), else `@dangerous` does not hold the command.
fn set_categories(command: *mut raw::RedisModuleCommand, spec: &CommandSpec, own_category: bool) -> Option<()> {
    let own = if own_category { CATEGORY } else { "" };
    let categories = [own, spec.categories].join(" ");
    let categories = categories.trim();
    if categories.is_empty() || !has_api!(RedisModule_SetCommandACLCategories) {
        return Some(());
    }
    let categories = c_string(categories);
    // SAFETY: both are live.
    let set = unsafe { api!(RedisModule_SetCommandACLCategories)(command, categories.as_ptr()) };
    (set == OK).then_some(())
}

fn set_info(command: *mut raw::RedisModuleCommand, spec: &CommandSpec) -> Option<()> {
    let mut texts = Texts::default();
    let mut args = texts.args(spec.args);
    let mut key_specs = [key_spec(spec.key), no_key_spec()];
    let info = raw::RedisModuleCommandInfo {
        version: &raw const LAYOUT,
        summary: texts.text(spec.summary),
        complexity: texts.text(spec.complexity),
        since: texts.text(spec.since),
        history: std::ptr::null_mut(),
        tips: null(),
        arity: spec.arity,
        key_specs: if spec.key == KeyAccess::None { std::ptr::null_mut() } else { key_specs.as_mut_ptr() },
        args: args.as_mut_ptr(),
    };
    // SAFETY: lists end in an empty entry; all is live during the call and the server copies it.
    let set = unsafe { api!(RedisModule_SetCommandInfo)(command, &raw const info) };
    (set == OK).then_some(())
}

/// The room: one key, the first argument.
fn key_spec(key: KeyAccess) -> raw::RedisModuleCommandKeySpec {
    let mut spec = no_key_spec();
    spec.flags = u64::from(key.flags());
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index = raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 };
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey: 0, keystep: 1, limit: 0 };
    spec
}

/// The end of a list of key specs.
fn no_key_spec() -> raw::RedisModuleCommandKeySpec {
    // SAFETY: numbers, null pointers and unions of them.
    unsafe { std::mem::zeroed() }
}

/// Keeps what the server's structures point to.
#[derive(Default)]
struct Texts {
    texts: Vec<CString>,
    groups: Vec<Vec<raw::RedisModuleCommandArg>>,
}

impl Texts {
    fn text(&mut self, text: &str) -> *const c_char {
        self.texts.push(c_string(text));
        self.texts.last().map_or(null(), |text| text.as_ptr())
    }

    fn args(&mut self, args: &[Arg]) -> Vec<raw::RedisModuleCommandArg> {
        let mut list: Vec<_> = args.iter().map(|arg| self.arg(arg)).collect();
        // SAFETY: numbers and null pointers; an argument without a name ends the list.
        list.push(unsafe { std::mem::zeroed() });
        list
    }

    fn arg(&mut self, arg: &Arg) -> raw::RedisModuleCommandArg {
        let mut flags = raw::REDISMODULE_CMD_ARG_NONE;
        if arg.optional {
            flags |= raw::REDISMODULE_CMD_ARG_OPTIONAL;
        }
        if arg.repeated {
            flags |= raw::REDISMODULE_CMD_ARG_MULTIPLE;
        }
        raw::RedisModuleCommandArg {
            name: self.text(arg.name),
            type_: arg_type(arg.kind),
            key_spec_index: if arg.kind == ArgKind::Key { 0 } else { -1 },
            token: arg.token.map_or(null(), |token| self.text(token)),
            summary: null(),
            since: null(),
            flags: flags as c_int,
            deprecated_since: null(),
            subargs: self.group(arg.args),
            display_text: null(),
        }
    }

    fn group(&mut self, args: &[Arg]) -> *mut raw::RedisModuleCommandArg {
        if args.is_empty() {
            return std::ptr::null_mut();
        }
        let mut group = self.args(args);
        let start = group.as_mut_ptr();
        self.groups.push(group);
        start
    }
}

fn arg_type(kind: ArgKind) -> raw::RedisModuleCommandArgType {
    match kind {
        ArgKind::Key => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
        ArgKind::Text => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        ArgKind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        ArgKind::UnixTime => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_UNIX_TIME,
        ArgKind::Flag => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        ArgKind::OneOf => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
        ArgKind::Block => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
    }
}

/// Rows hold the program's own texts, without NUL.
fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}
