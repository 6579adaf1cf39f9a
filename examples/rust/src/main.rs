//! A lesson with the crate `redis`: two users open, renew, one of them falls silent, and who follows the room learns of it.
//!
//!     cargo run -- [redis://localhost:6380/?protocol=resp3] [class]
//!
//! Replies are read the same way in RESP2 and RESP3: a `HashMap` is made of a map and of a flat array alike.

use std::collections::HashMap;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{cmd, from_redis_value, Commands, Connection, FromRedisValue, RedisError, RedisResult, ToRedisArgs, Value};

type Map = HashMap<String, Value>;

/// A session with its epoch. Ids may be any bytes.
type Session = (Vec<u8>, u64);

struct Lesson {
    con: Connection,
    room: String,
    events: String,
}

impl Lesson {
    /// LEASE.<verb> of the room. TRYAGAIN asks for the same command again, with the same ids; the crate does not know the module's, for its colon.
    fn lease<T: FromRedisValue>(&mut self, verb: &str, args: impl ToRedisArgs + Copy) -> RedisResult<T> {
        let mut tries = 50;
        loop {
            let reply = cmd(&format!("LEASE.{verb}")).arg(&self.room).arg(args).query(&mut self.con);
            match reply {
                Err(error) if head(&error) == "TRYAGAIN" && tries > 0 => tries -= 1,
                reply => return reply,
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// The server makes the session id. With a SESSION of one's own a resent OPEN would be harmless.
    fn open(&mut self, user: &str, options: &[&[u8]]) -> RedisResult<Session> {
        let opened: Map = self.lease("OPEN", &[&[user.as_bytes()], options].concat()[..])?;
        let (epoch, heartbeat_ms): (u64, u64) = (get(&opened, "epoch")?, get(&opened, "heartbeat_ms")?);
        println!(r#"opened {{"user": "{user}", "epoch": {epoch}, "heartbeat_ms": {heartbeat_ms}}}"#);
        Ok((get(&opened, "session")?, epoch))
    }

    /// One write for many heartbeats. Errors are values: one refused heartbeat spoils no other.
    fn renew(&mut self, sessions: &[&Session]) -> RedisResult<()> {
        let mut pipe = redis::pipe();
        for (session, epoch) in sessions {
            pipe.cmd("LEASE.RENEW").arg(&self.room).arg(session).arg(epoch).arg(seq());
        }
        let replies: Vec<RedisResult<(String, u64, u64)>> = pipe.ignore_errors().query(&mut self.con)?;
        let told: Vec<String> =
            replies.into_iter().map(|reply| reply.map_or_else(|error| head(&error), |(status, ..)| status)).collect();
        println!("renewed {told:?}");
        Ok(())
    }

    /// The id is the message's own: sent again, after a timeout say, it stands in the log once.
    fn send(&mut self, (session, epoch): &Session, messages: &[(&str, &[u8])]) -> RedisResult<()> {
        let mut told = Vec::new();
        for (id, payload) in messages {
            let sent: Map = self.lease("SEND", (session, epoch, id, payload))?;
            told.push(format!(r#"["{}", {}]"#, get::<String>(&sent, "status")?, get::<u64>(&sent, "seq")?));
        }
        println!("sent [{}]", told.join(", "));
        Ok(())
    }

    /// A consumer group on the events, from now on, if there is none yet.
    fn follow(&mut self) -> RedisResult<()> {
        let made: RedisResult<()> = self.con.xgroup_create_mkstream(&self.events, "lobby", "$");
        match made {
            Err(error) if error.code() != Some("BUSYGROUP") => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes events from the group until this session's lease has ended, and confirms each.
    fn await_removal(&mut self, (session, epoch): &Session) -> RedisResult<()> {
        let options = StreamReadOptions::default().group("lobby", "worker").block(5000);
        loop {
            let read: Option<StreamReadReply> = self.con.xread_options(&[&self.events], &[">"], &options)?;
            for entry in read.into_iter().flat_map(|read| read.keys).flat_map(|stream| stream.ids) {
                let _: u64 = self.con.xack(&self.events, "lobby", &[&entry.id])?;
                if entry.get::<String>("type").as_deref() == Some("removed")
                    && entry.get::<Vec<u8>>("session").as_ref() == Some(session)
                {
                    let (user, reason): (String, String) = (get(&entry.map, "user")?, get(&entry.map, "reason")?);
                    println!(r#"removed {{"user": "{user}", "epoch": {epoch}, "reason": "{reason}"}}"#);
                    return Ok(());
                }
            }
        }
    }

    fn roster(&mut self) -> RedisResult<()> {
        let page: Map = self.lease("ROSTER", ("COUNT", 100))?;
        let mut told = Vec::new();
        for lease in get::<Vec<Map>>(&page, "leases")? {
            let (user, device, seq): (String, Vec<u8>, u64) =
                (get(&lease, "user")?, get(&lease, "device")?, get(&lease, "seq")?);
            told.push(format!(r#"{{"user": "{user}", "device": "{}", "seq": {seq}}}"#, hex(&device)));
        }
        println!("roster [{}]", told.join(", "));
        Ok(())
    }

    /// Page by page; the position is (gen, next). On `resync` a client would call SNAPSHOT.
    fn replay(&mut self, (session, epoch): &Session) -> RedisResult<()> {
        let (mut gen, mut after, mut told) = ("*".to_string(), 0, Vec::new());
        loop {
            let page: Map = self.lease("REPLAY", (session, epoch, &gen, after, "COUNT", 1))?;
            for (seq, message) in get::<Vec<(u64, Map)>>(&page, "entries")? {
                told.push(format!(r#"[{seq}, "{}"]"#, hex(&get::<Vec<u8>>(&message, "payload")?)));
            }
            (gen, after) = (get(&page, "gen")?, get(&page, "next")?);
            if after == get::<u64>(&page, "current")? {
                println!("replayed [{}]", told.join(", "));
                return Ok(());
            }
        }
    }

    fn leave(&mut self, sessions: &[&Session]) -> RedisResult<()> {
        let left: RedisResult<Vec<String>> =
            sessions.iter().map(|(session, epoch)| self.lease("LEAVE", (session, epoch))).collect();
        println!("left {:?}", left?);
        Ok(())
    }
}

fn get<T: FromRedisValue>(map: &Map, field: &str) -> RedisResult<T> {
    Ok(from_redis_value(map.get(field).cloned().unwrap_or_default())?)
}

/// What to decide by: `STALE expired`, `HELD 12000`. The sentence behind the colon is for people.
fn head(error: &RedisError) -> String {
    let text = [error.code().unwrap_or_default(), error.detail().unwrap_or_default()].join(" ");
    text.split(':').next().unwrap_or_default().to_string()
}

/// A seq that rises without being stored: unix time in ns, or one more than the last where the clock stands or is set back.
fn seq() -> u64 {
    static LAST: Mutex<u64> = Mutex::new(0);
    let mut last = LAST.lock().unwrap();
    *last = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64).max(*last + 1);
    *last
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn main() -> RedisResult<()> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or("redis://localhost:6380/?protocol=resp3".into());
    let room = args.next().unwrap_or("class".into());
    let con = redis::Client::open(url)?.get_connection()?;
    // Of a room without a hash tag; of `k{tag}` it is `k{tag}:events`.
    let mut lesson = Lesson { con, events: format!("{{{room}}}:events"), room };

    // Follow first, so that nothing is missed.
    lesson.follow()?;
    let device = [&seq().to_be_bytes()[..], &[0xff]].concat(); // no text
    let ann = lesson.open("ann", &[b"DEVICE", &device, b"TTL", b"10000"])?;
    let ben = lesson.open("ben", &[b"TTL", b"1000"])?;
    lesson.renew(&[&ann, &ben, &(b"nobody".to_vec(), 1)])?;
    lesson.send(&ann, &[("m1", b"hello"), ("m2", b"\x00\xff"), ("m1", b"hello")])?;
    lesson.await_removal(&ben)?;
    let late: RedisResult<Value> = lesson.lease("RENEW", (&ben.0, ben.1, seq()));
    println!("refused {:?}", late.err().map_or("nothing".into(), |error| head(&error)));
    let ben = lesson.open("ben", &[])?; // STALE expired says: open a new session
    lesson.roster()?;
    lesson.replay(&ann)?;
    lesson.leave(&[&ann, &ben])
}
