import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { TableClient, TableServiceClient, type TransactionAction } from "@azure/data-tables";
import { QueueServiceClient } from "@azure/storage-queue";
import { type RunningHost, runHost } from "functions-host/test/run-host.ts";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { parseJsonLine, type RunningProcess, startProcess } from "../../infra/local/processes.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { licence } from "../support/licence.ts";
import { TEST_APP } from "../support/test-app.ts";
import type { Recording } from "./recording.ts";

const INFRA = path.resolve(import.meta.dirname, "../../infra");
const MOVED_PORTS = new URL("./moved-ports.mjs", import.meta.url).href;

/** A host of the current version with a recorded storage account and cloud. An earlier version wrote what is recorded. */
export interface RecordedService {
  azurite: Azurite;
  cloud: RunningProcess;
  controlUrl: string;
  host: RunningHost;
}

/**
 * Starts the current version with a recording, ten minutes after it.
 *
 * @param folder - An empty folder for the cloud's files and the clock.
 * @param environment - Further settings of the service.
 */
export async function startRecorded(
  recording: Recording,
  folder: string,
  environment: Record<string, string> = {},
): Promise<RecordedService> {
  // Sets the clocks of the storage, the cloud and the service to ten minutes after the recording.
  const clock = {
    MOVED_CLOCK_FILE: path.join(folder, "clock"),
    NODE_OPTIONS: `--import=${new URL("../../infra/local/moved-clock.mjs", import.meta.url).href}`,
  };
  writeFileSync(clock.MOVED_CLOCK_FILE, String(Date.parse(recording.recordedAt) + 10 * MINUTE_MS - Date.now()));
  const azurite = await startAzurite({ environment: clock });
  await restore(azurite.connectionString(), recording);
  const data = path.join(folder, "cloud");
  mkdirSync(data);
  for (const [name, text] of Object.entries(recording.cloud)) writeFileSync(path.join(data, name), text);
  const cloud = await startProcess(
    "The simulated cloud",
    [process.execPath, path.join(INFRA, "simulated-cloud/main.ts"), "--data", data, "--port", "0", "--ready-json"],
    { environment: { PATH: process.env.PATH, ...clock }, isReady: parseJsonLine },
  );
  const ready = cloud.ready as { environment: Record<string, string>; controlUrl: string };
  const host = await runHost({
    app: TEST_APP,
    env: {
      ...ready.environment,
      ...clock,
      NODE_OPTIONS: `${ready.environment.NODE_OPTIONS ?? ""} ${clock.NODE_OPTIONS} --import=${MOVED_PORTS}`,
      MOVED_PORTS: `${portOf(JSON.stringify(recording.tables))}:${portOf(JSON.stringify(ready.environment))}`,
      ...recording.environment,
      LICENSE_KEY: await licence(),
      AzureWebJobsStorage: azurite.connectionString(),
      RATE_LIMIT_PER_MINUTE: "0",
      RATE_LIMIT_PER_HOUR: "0",
      // Once a year, so that only the requested scans run.
      DELTA_SCAN_SCHEDULE: "0 0 0 1 1 *",
      FULL_SCAN_SCHEDULE: "0 0 0 1 1 *",
      SCHEDULE_JITTER_SECONDS: "0",
      ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true",
      ...environment,
    },
    args: ["--lease", "2", "--no-schedules", "--inspect-modules"],
  });
  return { azurite, cloud, controlUrl: ready.controlUrl, host };
}

/**
 * Returns the port of the first vault in a text. The recorded rows contain addresses with the recorded cloud's port.
 * MOVED_PORTS sends requests to this port to the port of the new cloud.
 */
const portOf = (text: string): string => /vault\.localhost:(\d+)/.exec(text)![1]!;

async function restore(connection: string, recording: Recording): Promise<void> {
  const options = { allowInsecureConnection: true };
  const service = TableServiceClient.fromConnectionString(connection, options);
  for (const [name, rows] of Object.entries(recording.tables)) {
    await service.createTable(name);
    const table = TableClient.fromConnectionString(connection, name, options);
    const created = rows.map((row): TransactionAction => ["create", row as { partitionKey: string; rowKey: string }]);
    const partitions = Object.values(Object.groupBy(created, ([, { partitionKey }]) => partitionKey));
    // A transaction can have 100 rows.
    for (const actions of partitions)
      for (let start = 0; start < actions!.length; start += 100)
        await table.submitTransaction(actions!.slice(start, start + 100));
  }
  const queues = QueueServiceClient.fromConnectionString(connection);
  for (const [name, messages] of Object.entries(recording.queues)) {
    const queue = queues.getQueueClient(name);
    await queue.createIfNotExists();
    for (const message of messages) await queue.sendMessage(message);
    // The killed process had received the messages, so they are received once and become visible again after a second.
    const [numberOfMessages, visibilityTimeout] = [32, 1];
    if (messages.length > 0) await queue.receiveMessages({ numberOfMessages, visibilityTimeout });
  }
}
