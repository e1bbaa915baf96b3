import { fork } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";

export interface Azurite {
  /** A storage connection string for one of the accounts, the first if none is named, with its table and queue endpoints. */
  connectionString(...named: [] | [account: string]): string;
  stop(): Promise<void>;
  /** Resolves with what happened when it ends without being asked. */
  readonly ended: Promise<string>;
}

export interface AzuriteOptions {
  /** Account names, 3..24 lower-case letters and digits. One of its own keeps a test file apart from every other. */
  readonly accounts?: readonly string[];
  /** A folder to keep the data in; without it everything is gone when it stops. */
  readonly data?: string;
  /** Added to its environment. */
  readonly environment?: Record<string, string>;
}

/** Starts Azurite's table and queue services in a process of their own, on free ports of the loopback interface. */
export async function startAzurite({ accounts = ["test"], data, environment }: AzuriteOptions = {}): Promise<Azurite> {
  if (data !== undefined) await mkdir(data, { recursive: true });
  const child = fork(fileURLToPath(new URL("./azurite-process.ts", import.meta.url)), [], {
    execArgv: [],
    env: {
      ...process.env,
      ...environment,
      AZURITE_ACCOUNTS: accounts.map((account) => `${account}:${accountKey(account)}`).join(";"),
      ...(data === undefined ? {} : { AZURITE_DATA: data }),
    },
    stdio: ["ignore", "ignore", "pipe", "ipc"],
  });
  let complaints = "";
  child.stderr?.on("data", (text) => {
    complaints += text;
  });
  const ports = await new Promise<{ tablePort: number; queuePort: number }>((resolve, reject) => {
    child.once("message", resolve as (message: unknown) => void);
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`Azurite ended with ${code} before it was ready: ${complaints}`)));
  });
  const ended = once(child, "exit").then(
    ([code, signal]) => `Azurite ended (${signal ?? `code ${code}`}) ${complaints}`,
  );
  return {
    ended,
    // Not a default value: an undefined that was read past the end of a list of names must not mean the first account.
    connectionString(...named) {
      const account = named.length === 0 ? accounts[0]! : named[0];
      if (!accounts.includes(account)) throw new Error(`This Azurite has no account ${account}.`);
      return [
        "DefaultEndpointsProtocol=http",
        `AccountName=${account}`,
        `AccountKey=${accountKey(account)}`,
        `TableEndpoint=http://127.0.0.1:${ports.tablePort}/${account}`,
        `QueueEndpoint=http://127.0.0.1:${ports.queuePort}/${account}`,
      ].join(";");
    },
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      // With data to keep it is asked to close, so that it writes its files; without, there is nothing to wait for.
      if (data === undefined) child.kill("SIGKILL");
      else child.disconnect();
      await ended;
    },
  };
}

/** Not a secret: made from the name, so that any process can work it out. */
const accountKey = (account: string) => createHash("sha256").update(account).digest("base64");
