// A session in a cluster, opened by either client from any node.
//
//   node cluster.mjs redis://localhost:6380 [class]

import { randomUUID } from "node:crypto";
import Redis from "ioredis";
import { createCluster, RESP_TYPES } from "redis";
import { say } from "./steps.mjs";

const [url, room = "class"] = process.argv.slice(2);

// node-redis does not ask the server where a command's keys are: the first argument is the key to go by.
const cluster = await createCluster({
  rootNodes: [{ url }],
  defaults: { RESP: 3, commandOptions: { typeMapping: { [RESP_TYPES.NUMBER]: String } } },
}).connect();
const { epoch } = await cluster.sendCommand(room, false, ["LEASE.OPEN", room, "ann", "SESSION", randomUUID()]);
say("opened", { user: "ann", epoch });
await cluster.close();

// ioredis does not either: it asks some node, and follows MOVED.
const nodes = new Redis.Cluster([url], { redisOptions: { protocol: 3, replyMapping: "resp3", stringNumbers: true } });
const opened = await nodes.call("LEASE.OPEN", room, "ann", "SESSION", randomUUID());
say("opened", { user: "ann", epoch: opened.epoch });
nodes.disconnect();
