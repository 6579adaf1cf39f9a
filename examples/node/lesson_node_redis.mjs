// A lesson with node-redis: two users open, renew, one of them falls silent, and who follows the room learns of it.
//
//   node lesson_node_redis.mjs [redis://localhost:6380] [class]

import { randomBytes, randomUUID } from "node:crypto";
import { createClient, RESP_TYPES } from "redis";
import { head, insist, say, seq, textual, unlessThere } from "./steps.mjs";

const [url = "redis://localhost:6380", room = "class"] = process.argv.slice(2);
const events = `{${room}}:events`; // of a room without a hash tag; of `k{tag}` it is `k{tag}:events`

// Bytes stay bytes, since ids may be any, and integers become text, since seqs may be above 2^53. With RESP 3 maps are objects.
const client = createClient({
  url,
  RESP: 3,
  commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer, [RESP_TYPES.NUMBER]: String } },
});
client.on("error", (error) => console.error(error.message));
await client.connect();

const lease = (verb, ...args) => insist(() => client.sendCommand([`LEASE.${verb}`, room, ...args]));

// A session id of one's own makes a resent OPEN harmless.
async function open(user, ...options) {
  const opened = await lease("OPEN", user, "SESSION", randomUUID(), ...options);
  say("opened", { user, epoch: opened.epoch, heartbeat_ms: opened.heartbeat_ms });
  return [opened.session, opened.epoch];
}

// A reader that blocks needs a connection of its own: it would hold up all other commands.
const reader = await client.duplicate().connect();

// Takes events from the group until this session's lease has ended, and confirms each.
async function removal([session]) {
  for (;;) {
    const streams = await reader.sendCommand(["XREADGROUP", "GROUP", "lobby", "worker", "BLOCK", "5000", "STREAMS", events, ">"]);
    for (const [id, fields] of Object.values(streams ?? {}).flat()) {
      const event = textual(fields);
      await client.sendCommand(["XACK", events, "lobby", id]);
      if (event.type === "removed" && event.session === String(session)) return event;
    }
  }
}

// Follow first, so that nothing is missed.
await client.sendCommand(["XGROUP", "CREATE", events, "lobby", "$", "MKSTREAM"]).catch(unlessThere);
const ann = await open("ann", "DEVICE", Buffer.concat([randomBytes(15), Buffer.of(0xff)]), "TTL", "10000");
const ben = await open("ben", "TTL", "1000");
const lost = removal(ben);

// Commands sent in one turn of the event loop go out in one write. One refused heartbeat spoils no other.
const beats = await Promise.allSettled(
  [ann, ben, ["nobody", "1"]].map(([session, epoch]) => client.sendCommand(["LEASE.RENEW", room, session, epoch, seq()])),
);
say("renewed", beats.map((beat) => (beat.status === "fulfilled" ? String(beat.value[0]) : head(beat.reason))));

// The id is the message's own: sent again, after a timeout say, it stands in the log once.
const sent = [];
for (const [id, payload] of [["m1", "hello"], ["m2", Buffer.of(0, 0xff)], ["m1", "hello"]]) {
  const reply = await lease("SEND", ...ann, id, payload);
  sent.push([String(reply.status), reply.seq]);
}
say("sent", sent);

const { user, epoch, reason } = await lost;
say("removed", { user, epoch, reason });
await lease("RENEW", ...ben, seq()).catch((error) => say("refused", head(error)));
const again = await open("ben"); // STALE expired says: open a new session

const { leases } = await lease("ROSTER");
say("roster", leases.map(({ user, device, seq }) => ({ user: String(user), device: device.toString("hex"), seq })));

// Page by page; the position is (gen, next). On `resync` a client would call SNAPSHOT.
const messages = [];
for (let gen = "*", after = "0", page = {}; after !== page.current; ) {
  page = await lease("REPLAY", ...ann, gen, after, "COUNT", "1");
  messages.push(...page.entries.map(([seq, message]) => [seq, message.payload.toString("hex")]));
  ({ gen, next: after } = page);
}
say("replayed", messages);

say("left", [String(await lease("LEAVE", ...ann)), String(await lease("LEAVE", ...again))]);
reader.destroy();
client.destroy();
