import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { createAudit } from "../../shared/audit/audit.ts";
import type { Compliance } from "../../shared/compliance/compliance.ts";
import {
  oldestViolationChange,
  violationChanges,
  violationPositionAt,
} from "../../shared/compliance/violation-changes.ts";
import { createAzureEvents } from "../../shared/platform/azure/azure-events.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import type { Caller } from "../../shared/platform/http/endpoint.ts";
import { type Logger, systemRandomness } from "../../shared/platform/runtime.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import type { NewAuditStream } from "../../shared/siem/api.ts";
import { type AuditStreams, createAuditStreams } from "../../shared/siem/siem.ts";
import { makeKey, publicKeys, settableClock } from "../audit/support.ts";
import { SHORT_WAITS } from "../azure/config.ts";
import { configFor } from "../azure/live-cloud.ts";
import { crashable, type Steps } from "../support/simulated-crash.ts";

// Audit streams on real tables and the simulated cloud, with an audit log whose clock the test sets.

export const caller: Caller = { actor: "admin", requestId: "test" };
/** The rule and the stream of the simulated data collection endpoint, and the simulated event hub. */
export const RULE = { ruleId: "dcr-00000000000000000000000000000001", streamName: "Custom-CredentialLifecycle_CL" };
export const HUB = "audit";

/** A received CloudEvent. */
export interface Received {
  id: string;
  type: string;
  sequence: string;
  data: Record<string, unknown>;
}

export type Fixture = ReturnType<typeof openFixture>;

export function openFixture({ cloud, connectionString }: { cloud: Cloud; connectionString: string }) {
  const clock = settableClock("2026-11-21T10:00:00.000Z");
  const config = configFor(cloud);
  const privateConfig = { ...config, ALLOW_PRIVATE_WEBHOOK_ADDRESSES: true };
  const logged: string[] = [];
  const write = (message: string, fields?: object) => void logged.push(`${message} ${JSON.stringify(fields)}`);
  const log: Logger = { debug: write, info: write, warn: write, error: write };
  const identity = createIdentity(config);
  const vault = createServiceKeyVault({ config, identity, log })!;
  const keys = keyVaultRowKeys(vault, systemRandomness());
  const tablesOf = (storage: string) => createTables({ connectionString: storage }, { keys });
  const tables = tablesOf(connectionString);
  const signingKey = makeKey("k1");
  const auditOf = (on = tables) =>
    createAudit({
      tables: on,
      clock,
      randomness: systemRandomness(),
      config: { AUDIT_SIGNING_KEYS: [signingKey], AUDIT_MINIMUM_RETENTION_DAYS: 90 },
      log,
    });
  const audit = auditOf();
  const complianceOf = (on = tables): Pick<Compliance, "violationChanges"> => ({
    violationChanges: {
      after: (position) => violationChanges(on, position, clock.now()),
      oldest: (position) => oldestViolationChange(on, position, clock.now()),
      now: () => violationPositionAt(clock.now()),
    },
  });
  const { port } = new URL(config.SERVICE_KEY_VAULT_URL!);

  /** Creates the module as one instance of the service has it. It crashes at one of its steps if `steps` says so. */
  function instance(steps: Steps = { taken: 0 }, storage?: string): AuditStreams {
    const on = storage === undefined ? tables : tablesOf(storage);
    return createAuditStreams({
      tables: crashable(on, steps, (name) => name !== "pages"),
      audit: storage === undefined ? audit : auditOf(on),
      compliance: complianceOf(on),
      vault,
      azureEvents: crashable(createAzureEvents({ config, identity, log, limits: SHORT_WAITS }), steps),
      config: privateConfig,
      clock,
      randomness: systemRandomness(),
    });
  }
  const streams = instance();
  let entries = 0;

  const fixture = {
    cloud,
    clock,
    tables,
    audit,
    vault,
    logged,
    instance,
    streams,
    publicKeys: publicKeys(signingKey),
    ingestionEndpoint: `https://dce-acme.ingest.localhost:${port}`,
    hubsEndpoint: `https://evhns-lifecycle.servicebus.localhost:${port}`,

    /** Appends entries to the audit log, and returns their number so far. */
    async append(count: number, details: Record<string, unknown> = {}): Promise<number> {
      for (let index = 0; index < count; index++)
        await audit.append({
          type: "thing.changed",
          caller: { actor: "ada", requestId: `r-${++entries}` },
          outcome: "success",
          target: { type: "thing", id: String(entries) },
          details,
        });
      return entries;
    },

    /** Lets ten minutes pass, and seals the log. */
    async seal(): Promise<void> {
      clock.addMinutes(11);
      await audit.seal();
    },

    async create(given: Partial<NewAuditStream> & Pick<NewAuditStream, "destination">) {
      const defaults = {
        name: `stream ${Math.random()}`,
        content: ["audit" as const],
        enabled: true,
        from: "now" as const,
      };
      return await streams.create({ ...defaults, ...given }, caller);
    },
    createHub: (given: Partial<NewAuditStream> = {}) =>
      fixture.create({ destination: "eventHubs", endpoint: fixture.hubsEndpoint, eventHub: HUB, ...given }),

    /** Runs the streams until nothing is sent anymore. */
    async runAll(module = streams): Promise<number> {
      let total = 0;
      for (let sent = await module.run(); sent > 0; sent = await module.run()) total += sent;
      return total;
    },

    /** Returns the events that the event hub received from a stream, in order. */
    hubEvents: (streamId: string): Received[] =>
      cloud.control.eventHubs.events
        .filter(({ partitionKey }) => partitionKey === streamId)
        .map(({ body }) => JSON.parse(body) as Received),

    async stateOf(streamId: string) {
      const stream = await streams.get(streamId);
      return (await streams.states([stream]))[0]!;
    },

    async removeAll(): Promise<void> {
      for (const { streamId } of await streams.all()) await streams.remove(streamId, caller, undefined);
    },
  };
  return fixture;
}

/** A receiver of webhooks that a test stops, restarts and makes fail. */
export interface Receiver {
  url: string;
  /** The batches that it accepted: the text of the body, and the headers. */
  batches: { body: string; headers: Record<string, string> }[];
  events(): Received[];
  /** Status of the next answers. */
  status: number;
  headers: Record<string, string>;
  /** Runs after a batch arrived and before it is answered. */
  afterBatch?: (() => Promise<void>) | undefined;
  stop(): Promise<void>;
  restart(): Promise<void>;
}

export async function startReceiver(): Promise<Receiver> {
  const batches: Receiver["batches"] = [];
  let server: Server | undefined;
  const listen = (port: number) =>
    new Promise<Server>((resolve) => {
      const answer = async (request: IncomingMessage, response: ServerResponse) => {
        const chunks: Buffer[] = [];
        for await (const chunk of request) chunks.push(chunk as Buffer);
        const isAccepted = receiver.status < 300;
        if (isAccepted)
          batches.push({
            body: Buffer.concat(chunks).toString("utf8"),
            headers: request.headers as Record<string, string>,
          });
        await receiver.afterBatch?.();
        response.writeHead(receiver.status, receiver.headers).end();
      };
      const started = createServer((request, response) => void answer(request, response));
      started.listen(port, "127.0.0.1", () => resolve(started));
    });
  server = await listen(0);
  const { port } = server.address() as AddressInfo;
  const receiver: Receiver = {
    url: `http://127.0.0.1:${port}/a-secret-path?token=a-secret-token`,
    batches,
    events: () => batches.flatMap(({ body }) => JSON.parse(body) as Received[]),
    status: 202,
    headers: {},
    async stop() {
      server?.closeAllConnections();
      await new Promise((resolve) => server?.close(resolve));
      server = undefined;
    },
    async restart() {
      server = await listen(port);
    },
  };
  return receiver;
}

/** Returns the events without later duplicates. Checks that a duplicate has the content of the first event with its ID. */
export function withoutDuplicates(events: readonly Received[]): Received[] {
  const first = new Map<string, Received>();
  for (const event of events) {
    const known = first.get(event.id);
    if (known && JSON.stringify(known) !== JSON.stringify(event)) throw new Error(`${event.id} has two contents.`);
    if (!known) first.set(event.id, event);
  }
  return [...first.values()];
}

/** Returns the entries' target IDs, which count the appended entries. */
export const numbersOf = (events: readonly Received[]): number[] =>
  events
    .filter(({ type, data }) => type === "lifecycle.audit.entry" && data.eventType === "thing.changed")
    .map(({ data }) => Number((data.target as { id: string }).id));
