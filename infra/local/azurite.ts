import { fork } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, renameSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";

// Starts Azurite, the emulator of Azure Storage, for `npm start` and the tests.

export interface Azurite {
  /** Returns the connection string of an account, by default the first, with its table and queue endpoints. */
  connectionString(...named: [] | [account: string]): string;
  /** Stops the process. Data in a folder is complete on disk afterwards. */
  stop(): Promise<void>;
  /** Resolves with the exit code or signal and the error output when the process ends. */
  readonly ended: Promise<string>;
}

export interface AzuriteOptions {
  /** Account names of 3 to 24 lower-case letters and digits. */
  readonly accounts?: readonly string[];
  /** Folder of the data. Without a folder, the data is in memory and is lost when Azurite stops. */
  readonly data?: string;
  /** Variables that are added to the environment of the process. */
  readonly environment?: Record<string, string>;
}

interface Ports {
  readonly table: number;
  readonly queue: number;
}

/** See https://github.com/Azure/Azurite#supported-command-line-options. Port 0 selects any free port. */
const AZURITE_OPTIONS = [
  "--blobPort=0",
  "--queuePort=0",
  "--tablePort=0",
  "--tableKeepAliveTimeout=60",
  "--queueKeepAliveTimeout=60",
  "--disableTelemetry",
  "--silent",
  "--skipApiVersionCheck",
  "--disableProductStyleUrl",
];

/** Returns the path of the `azurite` command in node_modules. */
function azuriteCommand(): string {
  const require = createRequire(import.meta.url);
  const manifest = require.resolve("azurite/package.json");
  return path.resolve(path.dirname(manifest), (require(manifest) as { bin: { azurite: string } }).bin.azurite);
}

/** Reads the ports from the output of Azurite. Undefined until both the table and the queue service listen. */
function listeningPorts(output: string): Ports | undefined {
  const port = (service: string) => {
    const line = new RegExp(
      `^Azurite ${service} service is successfully listening at http://127\\.0\\.0\\.1:(\\d+)\\s`,
      "m",
    );
    return Number(line.exec(output)?.[1] ?? 0);
  };
  const [table, queue] = [port("Table"), port("Queue")];
  return table && queue ? { table, queue } : undefined;
}

/** File names of earlier versions of this project, with the names that Azurite uses. */
const RENAMED_FILES = {
  "tables.json": "__azurite_db_table__.json",
  "queues.json": "__azurite_db_queue__.json",
  "queue-extents.json": "__azurite_db_queue_extent__.json",
  "queue-content": "__queuestorage__",
};

function renameOldFiles(folder: string): void {
  for (const [from, to] of Object.entries(RENAMED_FILES).map((names) =>
    names.map((name) => path.join(folder, name)),
  ) as [string, string][])
    if (existsSync(from) && !existsSync(to)) renameSync(from, to);
}

/**
 * Starts Azurite in a process of its own, on free ports of the loopback interface.
 *
 * @throws {Error} If the process ends before it listens.
 */
export async function startAzurite({ accounts = ["test"], data, environment }: AzuriteOptions = {}): Promise<Azurite> {
  if (data !== undefined) {
    await mkdir(data, { recursive: true });
    renameOldFiles(data);
  }
  const persistence = data === undefined ? ["--inMemoryPersistence"] : ["--location", data];
  const child = fork(azuriteCommand(), [...AZURITE_OPTIONS, ...persistence], {
    execArgv: [`--import=${new URL("./end-with-parent.mjs", import.meta.url).href}`],
    // A process group of its own: Ctrl-C in a terminal must not end storage before the processes that use it.
    detached: true,
    env: {
      ...process.env,
      AZURITE_ACCOUNTS: accounts.map((account) => `${account}:${accountKey(account)}`).join(";"),
      ...environment,
    },
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
  let errors = "";
  child.stderr!.on("data", (text) => {
    errors += text;
  });
  const ports = await new Promise<Ports>((resolve, reject) => {
    let output = "";
    const read = (text: Buffer) => {
      output += text;
      const openPorts = listeningPorts(output);
      if (openPorts) resolve(openPorts);
    };
    child.stdout!.on("data", read);
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`Azurite ended with ${code} before it listened: ${errors}`)));
  });
  // The output is read and discarded, because Azurite would block if nobody read it.
  child.stdout!.removeAllListeners("data").resume();
  const ended = once(child, "exit").then(([code, signal]) => `Azurite ended (${signal ?? `code ${code}`}) ${errors}`);
  return {
    ended,
    // Rest parameters and not a default value: `connectionString(undefined)`, from a missing list entry, must throw and not
    // select the first account.
    connectionString(...named) {
      const account = named.length === 0 ? accounts[0]! : named[0];
      if (!accounts.includes(account)) throw new Error(`This Azurite has no account ${account}.`);
      return [
        "DefaultEndpointsProtocol=http",
        `AccountName=${account}`,
        `AccountKey=${accountKey(account)}`,
        `TableEndpoint=http://127.0.0.1:${ports.table}/${account}`,
        `QueueEndpoint=http://127.0.0.1:${ports.queue}/${account}`,
      ].join(";");
    },
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      // Azurite writes its files when it shuts down. Disconnecting makes it shut down (end-with-parent.mjs).
      if (data === undefined) child.kill("SIGKILL");
      else child.disconnect();
      await ended;
    },
  };
}

/** Returns the key of an account. It is derived from the name and is not secret: any process can compute it. */
const accountKey = (account: string) => createHash("sha256").update(account).digest("base64");
