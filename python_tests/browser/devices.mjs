// Plays the tabs of one browser to the code of docs/devices.md.

import assert from "node:assert/strict";
import { deviceId, electLeader } from "./page.mjs";

// The Web Locks of one browser: a lock is free again when what its callback returned is settled.
class Locks {
  held = new Map();

  async request(name, options, callback = options) {
    if (options.ifAvailable && this.held.has(name)) return callback(null);
    while (this.held.has(name)) await this.held.get(name);
    const ended = Promise.resolve(callback({ name }));
    this.held.set(name, ended);
    await ended;
    this.held.delete(name);
  }
}

class Storage extends Map {
  getItem = (name) => this.get(name) ?? null;
  setItem = (name, value) => this.set(name, value);
  removeItem = (name) => this.delete(name);
}

const locks = new Locks();
const tab = new Storage();
const id = await deviceId(tab, locks);
const duplicate = new Storage(tab);
assert.equal(tab.get("device"), id);
assert.notEqual(await deviceId(duplicate, locks), id);
assert.notEqual(duplicate.get("device"), id);
assert.equal(await deviceId(new Storage(tab), new Locks()), id, "a reload, which gave the lock back");

const led = [];
let close;
const closed = new Promise((resolve) => (close = resolve));
const channels = [
  electLeader("class", () => { led.push("first"); return closed; }, locks),
  electLeader("class", () => { led.push("second"); }, locks),
];
await null;
assert.deepEqual(led, ["first"]);
close();
await closed.then(() => new Promise(setImmediate));
assert.deepEqual(led, ["first", "second"]);
channels.forEach((channel) => channel.close());
