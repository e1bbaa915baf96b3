// Runs Azurite's table and queue services on free ports and tells the parent which. Started by `azurite.ts`; ends with it.
// Azurite's own programs print "0" as the port when they are asked for a free one, hence its servers are made here.
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { keepRowsAsTheyCome } from "./azurite-entities.ts";
import { removeMessagesBesides } from "./azurite-messages.ts";
import { logNoTransactions, readHeadersOnce, repeatNothing } from "./azurite-requests.ts";
import { findRowsByKeys } from "./azurite-rows.ts";
import "./kept-hmac-keys.mjs";

interface Server {
  readonly httpServer: { address(): AddressInfo };
  start(): Promise<void>;
  close(): Promise<void>;
}
type Constructor<T> = new (...args: unknown[]) => T;

const require = createRequire(import.meta.url);
const open = <T>(path: string): T => require(`azurite/dist/src/${path}.js`) as T;
const load = <T>(path: string): Constructor<T> => open<{ default: Constructor<T> }>(path).default;

findRowsByKeys(load("table/persistence/LokiTableMetadataStore"));
// It answers by an error that a row is not there: whose stack is made for nobody.
Error.stackTraceLimit = 1;
repeatNothing(open("common/utils/utils"), open("table/generated/utils/utils"), open("queue/generated/utils/utils"));
open<{ getUTF8ByteSize(text: string): number }>("table/utils/utils").getUTF8ByteSize = (text) =>
  Buffer.byteLength(text);
logNoTransactions({
  utils: load("table/batch/TableBatchUtils") as never,
  orchestrator: load("table/batch/TableBatchOrchestrator") as never,
  serialization: open<{ BatchSerialization: never }>("table/batch/BatchSerialization").BatchSerialization,
});
keepRowsAsTheyCome(open("table/entity/NormalizedEntity"), load("table/handlers/TableHandler") as never);
readHeadersOnce({
  operation: open("table/batch/TableBatchOperation"),
  headers: load("table/batch/BatchRequestHeaders") as never,
});
removeMessagesBesides(load("common/persistence/LokiExtentMetadataStore"));

const folder = process.env.AZURITE_DATA;
const inMemory = folder === undefined;
const file = (name: string) => join(folder ?? ".", name);
const address = ["127.0.0.1", 0, 60]; // host, any free port, seconds to keep an idle connection
// loose, skip the API version check, certificate, key, password, OAuth, only path-style addresses, in memory
const rest = [false, true, "", "", "", undefined, true, inMemory];
// debug log, access log, access log stream, debug log path
const withoutTableLogs = [false, false, undefined, undefined];
// access log, access log stream, debug log, debug log path
const withoutQueueLogs = [false, undefined, false, undefined];

const tables = new (load<Server>("table/TableServer"))(
  new (load("table/TableConfiguration"))(...address, file("tables.json"), ...withoutTableLogs, ...rest),
);
const queues = new (load<Server>("queue/QueueServer"))(
  new (load("queue/QueueConfiguration"))(
    ...address,
    file("queues.json"),
    file("queue-extents.json"),
    [{ locationId: "Default", locationPath: file("queue-content"), maxConcurrency: 1 }],
    ...withoutQueueLogs,
    ...rest,
  ),
);
await Promise.all([tables.start(), queues.start()]);

// Ctrl-C in a terminal reaches every process of the group, this one too; storage ends when its parent says so, last.
for (const signal of ["SIGINT", "SIGHUP"] as const) process.on(signal, () => {});
// The parent hangs up to stop this process, or by ending: either way nothing is left running.
process.on("disconnect", () => {
  Promise.all([tables.close(), queues.close()]).then(() => process.exit(0), endWith);
});
function endWith(error: unknown): never {
  console.error(error);
  process.exit(1);
}

process.send?.({ tablePort: tables.httpServer.address().port, queuePort: queues.httpServer.address().port });
