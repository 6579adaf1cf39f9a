// Plays a peer connection to the code of docs/webrtc.md.

import assert from "node:assert/strict";
import { mock } from "node:test";
import { reportState } from "./page.mjs";

class Peer extends EventTarget {
  connectionState = "new";

  become(state) {
    this.connectionState = state;
    this.dispatchEvent(new Event("connectionstatechange"));
  }

  close() {
    this.connectionState = "closed"; // fires no event
  }
}

mock.timers.enable({ apis: ["setInterval"] });
const peer = new Peer(), sent = [];
const close = reportState(peer, 10_000, ({ state }) => sent.push(state));
peer.become("connected");
mock.timers.tick(10_000);
peer.become("disconnected");
mock.timers.tick(20_000);
close();
peer.become("failed");
mock.timers.tick(10_000);
assert.deepEqual(sent, ["connected", "connected", "disconnected", "disconnected", "disconnected", "closed"]);
