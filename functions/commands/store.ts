/**
 * The command `npm run store`. It copies the tables of a deployment, restores a copy, sends or drops the alerts that a restore
 * holds, or prepares the tables for an earlier version. See HELP.
 */

import { readFile } from "node:fs/promises";
import path from "node:path";
import * as z from "zod";
import { commandLine, exitWithUsageError } from "../../infra/build/command-line.ts";
import type { DeliveryRecord } from "../../shared/alerts/delivery.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { ConfigError, loadConfig } from "../../shared/platform/config/config.ts";
import type { Caller } from "../../shared/platform/http/endpoint.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { storageAccount } from "../../shared/platform/storage/connection.ts";
import { requireKnownFormat, StoreIsNewer } from "../../shared/platform/storage/store-format.ts";
import { isUnclear, SigningKeysMissing } from "../../shared/platform/storage/tables.ts";
import { createWholeTables } from "../../shared/platform/storage/whole-tables.ts";
import { CopyFailed, copyStore } from "../../shared/store/copy.ts";
import { prepareRollback, RollbackRefused } from "../../shared/store/prepare-rollback.ts";
import { restoreStore } from "../../shared/store/restore.ts";
import { workInProgress } from "../../shared/store/work-in-progress.ts";
import type { Services } from "../services.ts";
import { requireNoFindings, signStore } from "./sign-store.ts";

const HELP = `npm run store -- COMMAND [options]

Copies the tables of the service that \`npm start\` runs, or of the deployment that the environment variables configure.
Stop the app before backup, restore, sign --accept and prepare-rollback, and wait until no invocation runs.

  backup  --to FOLDER                copies all tables to a new folder
  restore --from FOLDER [--replace]  restores a copy into an empty store; --replace first deletes all rows of the store
  sign    [--accept [--remove ROW]]  lists signed rows that were changed, removed or returned by another program; --accept
                                     accepts them as they are, apart from each ROW (as listed), which is removed
  held                               lists held alerts: those that may have been sent between the copy and the restore
  send    --id ID|all                sends held alerts
  drop    --id ID|all                drops held alerts
  prepare-rollback --to COMMIT [--dry-run]
                                     prepares the store for an earlier build (b545d8e2, 7af1c37d, fc16f64b, 6da79ba2 or f8ec7568): lists
                                     what it loses or does differently; with --dry-run writes nothing

Only the owner can read a copy. It contains hashes of passwords and signed rows, and no secret values. Queues are not copied.
The audit log records restore, send, drop and prepare-rollback with the actor system and the name of your account on this machine.`;

const OPTIONS = {
  to: { type: "string" },
  from: { type: "string" },
  id: { type: "string" },
  replace: { type: "boolean", default: false },
  accept: { type: "boolean", default: false },
  remove: { type: "string", multiple: true },
  "dry-run": { type: "boolean", default: false },
} as const;

interface Options {
  to?: string | undefined;
  from?: string | undefined;
  id?: string | undefined;
  replace: boolean;
  accept: boolean;
  remove?: string[] | undefined;
  "dry-run": boolean;
}

/** Returns an option. Ends the process if the option is missing. */
const required = (options: Options, name: "to" | "from" | "id"): string =>
  options[name] ?? exitWithUsageError(`--${name} is missing`);

/** Calls an action for one held delivery or for all. */
async function forHeld(
  { alerts }: Services,
  options: Options,
  action: (deliveryId: string) => Promise<DeliveryRecord>,
): Promise<number> {
  const id = required(options, "id");
  // Reads all first, because the actions remove deliveries from the list.
  const deliveryIds: string[] = [];
  for await (const { deliveryId } of alerts.held.list())
    if (id === "all" || deliveryId === id) deliveryIds.push(deliveryId);
  if (deliveryIds.length === 0 && id !== "all")
    throw new CopyFailed(`No held alert has the id ${id}. List the ids with: npm run store -- held`);
  let decided = 0;
  for (const deliveryId of deliveryIds) {
    try {
      await action(deliveryId);
      decided++;
    } catch (error) {
      // Another person decided meanwhile, or the list was behind.
      if (!(error instanceof Problem && id === "all")) throw error;
    }
  }
  return decided;
}

/** Returns who runs the command, for the audit log. */
const callerOf = ({ randomness, clock }: Services): Caller => ({
  actor: "system",
  requestId: randomness.ulid(clock.now()),
});
/** Returns the account of the person on this machine, if the environment names it. */
const startedBy = (): string => process.env.USER ?? process.env.USERNAME ?? "unknown";

const COMMANDS: Record<string, (services: Services, options: Options) => Promise<void>> = {
  async backup({ connection, clock }, options) {
    const wholeTables = createWholeTables(connection, { clock });
    const { version } = z
      .object({ version: z.string() })
      .parse(JSON.parse(await readFile(path.join(import.meta.dirname, "../../package.json"), "utf8")));
    const source = { tables: wholeTables, clock, account: storageAccount(connection), version };
    const { copiedAt } = await copyStore(source, required(options, "to"), console.log);
    console.log(`Copied all tables as of ${copiedAt}. Keep the folder as safe as the storage account.`);
  },

  async restore(services, options) {
    const { connection, clock, tables, alerts, audit, graph, serviceKeyVault } = services;
    const target = { wholeTables: createWholeTables(connection, { clock }), tables, held: alerts.held, audit, clock };
    const request = {
      folder: required(options, "from"),
      replace: options.replace,
      caller: callerOf(services),
      startedBy: startedBy(),
    };
    if (!serviceKeyVault)
      console.log(
        "SERVICE_KEY_VAULT_URL is not set. If the app has a key vault, set it and restore again: otherwise alerts are sent again.",
      );
    const { manifest, heldDeliveries } = await restoreStore(target, request, console.log);
    console.log(`Restored the copy of ${manifest.copiedAt} of ${manifest.account}. Later changes are undone.`);
    if (serviceKeyVault) await signStore(services, { accept: true }, console.log);
    for await (const line of workInProgress({ tables, graph, clock })) console.log(line);
    console.log(`Held alerts, which were pending in the copy: ${heldDeliveries}. More are held after the start.
Next: start the app, start a full scan, and decide on held alerts (npm run store -- held). Up to the first evaluation
after that scan, the service holds new alerts that it may have sent after the copy. Review the users, revoke API tokens,
and run GET /audit/verify.`);
  },

  sign: (services, options) => signStore(services, options, console.log),

  async held({ alerts }) {
    for await (const { deliveryId, createdAt, ruleName, deliveryMethod, newsTotal, parts } of alerts.held.list()) {
      const recipients = parts.flatMap((part) => part.recipients).join(", ");
      console.log([deliveryId, createdAt, ruleName, deliveryMethod, `${newsTotal} items`, recipients].join("\t"));
    }
  },

  async send(services, options) {
    const sent = await forHeld(services, options, (id) => services.alerts.held.send(id, callerOf(services)));
    console.log(`Sending ${sent} held alerts.`);
  },

  async drop(services, options) {
    const dropped = await forHeld(services, options, (id) => services.alerts.held.drop(id, callerOf(services)));
    console.log(`Dropped ${dropped} held alerts.`);
  },

  async "prepare-rollback"(services, options) {
    const { connection, tables, audit, signedRows } = services;
    const deps = { wholeTables: createWholeTables(connection), tables, audit };
    const to = required(options, "to");
    const dryRun = options["dry-run"];
    await requireNoFindings(services);
    await prepareRollback(deps, { to, dryRun, caller: callerOf(services), startedBy: startedBy() }, console.log);
    // The earlier build writes rows without signatures. This version then signs all rows again when it next starts.
    if (!dryRun) await signedRows.forget();
    console.log(
      dryRun
        ? "Nothing was written. Run the command without --dry-run to prepare the store."
        : `The store is prepared for ${to}. Deploy that build. If this version runs again first, run the command again.`,
    );
  },
};

/** The commands that write nothing. */
const READING = ["backup", "held"];

async function main(): Promise<void> {
  const { positionals, values } = commandLine(HELP, { allowPositionals: true, options: OPTIONS });
  const [name = "help", ...extraArguments] = positionals;
  if (name === "help") return console.log(HELP);
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!command || extraArguments.length > 0)
    return exitWithUsageError(`Unknown command: ${[name, ...extraArguments].join(" ")}`);
  const { createServices } = await import("../services.ts");
  const services = createServices(loadConfig(process.env));
  // A restore replaces the store, whichever version used it last.
  if (name !== "restore") await requireKnownFormat(services.tables);
  if (!READING.includes(name)) await services.audit.requireKeys();
  await command(services, values);
}

try {
  await main();
} catch (error) {
  if (error instanceof Error && isUnclear(error))
    console.error(
      `The storage account does not respond (${error.message}). Check AzureWebJobsStorage and the network, and run the command again.`,
    );
  else if (error instanceof CloudFailure) console.error(`${error.message} ${error.remedy}`);
  else if (
    error instanceof CopyFailed ||
    error instanceof RollbackRefused ||
    error instanceof StoreIsNewer ||
    error instanceof SigningKeysMissing ||
    error instanceof Problem ||
    error instanceof ConfigError
  )
    console.error(error.message);
  else throw error;
  process.exitCode = 1;
}
