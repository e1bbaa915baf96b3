import { setTimeout as delay } from "node:timers/promises";
import { TableClient, TableServiceClient } from "@azure/data-tables";
import { QueueServiceClient } from "@azure/storage-queue";
import { Dice } from "simulated-cloud/company/dice.ts";
import type { CompanyResource } from "simulated-cloud/company/resources.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { licence } from "../support/licence.ts";
import { movedClock } from "../support/moved-clock.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { ADMIN, type Answer, Service } from "../support/service.ts";

/**
 * Hosts killed with SIGKILL while a vault's secret is rotated with those who use it: at a drawn write to the tables or call to
 * the cloud, before it is carried out or after. A campaign has 15 rotations of each outcome killed,
 * the suite one in all.
 */
const DEATHS = 15;
/** Number of writes and calls of each rotation. */
const LEAST_STEPS = 24;

const [VAULT, SECRET, OWN] = ["kv-shop", "db", "kv-lifecycle-service"];
const PLACE = { vault: VAULT, secret: SECRET };
const system = { system: true };
const uri = `{uri:${VAULT}}/secrets/${SECRET}`;
const webApp = (name: string): CompanyResource => ({
  type: "Microsoft.Web/sites",
  name,
  kind: "app",
  identity: system,
  settings: { DB_PASSWORD: `@Microsoft.KeyVault(VaultName=${VAULT};SecretName=${SECRET})` },
});
const resources: CompanyResource[] = [
  ...["app-orders", "app-stock", "app-left-out"].map(webApp),
  {
    type: "Microsoft.App/containerApps",
    name: "ca-mailer",
    identity: system,
    properties: {
      configuration: { secrets: [{ name: "db", keyVaultUrl: uri, identity: "system" }] },
      template: { containers: [{ name: "main", image: "shop:1", env: [{ name: "DB", secretRef: "db" }] }] },
    },
  },
  {
    type: "Microsoft.ApiManagement/service",
    name: "api-shop",
    identity: system,
    children: {
      namedValues: [
        { name: "db", properties: { displayName: "db", secret: true, keyVault: { secretIdentifier: uri } } },
      ],
    },
  },
];

const dice = new Dice(SEED);
const storageClock = movedClock();
/** Logs of all hosts, including crashed ones. */
const lines: string[][] = [];
const values = ["value-before-everything"];
let service: Service;
/** All ids but of the one that is left out. */
let included: string[];
let leftOut: string;
let token: string | undefined;

beforeAll(async () => {
  service = await Service.start({
    tableProxy: true,
    company: {
      subscriptions: [
        { name: "Shop", vaults: [{ name: VAULT, secrets: [{ name: SECRET, value: values[0]! }] }], resources },
      ],
    },
    lease: 1,
    env: { LICENSE_KEY: await licence() },
    storageEnv: storageClock.environment,
  });
  lines.push(service.hosts[0]!.lines);
  expect(await service.scan()).toMatchObject({ status: "completed" });
  expect((await admin("POST", "/api/assets/dependencies/discover")).body).toMatchObject({ status: "completed" });
  const { consumers } = service.cloud.control;
  consumers.setIssuer(PLACE);
  leftOut = consumers.idOf("app-left-out", "Microsoft.Web/sites");
  included = resources.map(({ name, type }) => consumers.idOf(name, type)).filter((id) => id !== leftOut);
});
afterAll(async () => {
  await service?.stop();
  storageClock.remove();
});

const heldNow = (): string[] =>
  service.cloud.control
    .items(OWN, "secrets")
    .map(({ name }) => name)
    .filter((name) => name.startsWith("rotation-"));

/** Time passes here, and tokens with it. */
async function admin(method: string, path: string, body?: unknown): Promise<Answer> {
  token ??= await service.signIn(ADMIN);
  const answer = await service.call(method, path, { token, body });
  if (answer.status !== 401) return answer;
  token = await service.signIn(ADMIN);
  return await service.call(method, path, { token, body });
}

let ahead = 0;
const now = (): number => Date.now() + ahead;
async function pass(milliseconds: number): Promise<void> {
  ahead += milliseconds;
  service.cloud.control.moveClock(milliseconds);
  await storageClock.add(milliseconds);
}

async function wake(): Promise<Answer> {
  return await service.call("POST", "/admin/functions/wakeRotations", { body: {} });
}

interface Moment {
  of: "write" | "call";
  /** The how manieth since the rotation was asked for. */
  at: number;
  how: "before" | "after";
}

/** Kills the host at the moment, once. */
class SimulatedCrash {
  #killed: Promise<unknown> | undefined;
  #writes = 0;
  readonly #fault: string | undefined;
  readonly #watch: NodeJS.Timeout | undefined;

  constructor({ of, at, how }: Moment) {
    const { control } = service.cloud;
    service.tables.fail([how === "before" ? "LostRequest" : "LostAnswer"], ({ method, path }) => {
      if (method === "GET" || path.startsWith("LocalHostLeases") || ++this.#writes !== at || of !== "write")
        return false;
      this.#kill();
      return true;
    });
    if (of === "write" || at === Number.POSITIVE_INFINITY) return;
    const action = { kind: how === "before" ? ("hang" as const) : ("hangAfter" as const) };
    const id = control.addFault({ action, times: 1, after: at - 1 });
    this.#fault = id;
    this.#watch = setInterval(() => {
      if (control.faults().some((one) => one.id === id && one.happened > 0)) this.#kill();
    }, 10);
  }

  /** So far. */
  get writes(): number {
    return this.#writes;
  }

  get happened(): boolean {
    return this.#killed !== undefined;
  }

  /**
   * Starts another host after the leases of the crashed one have expired. @returns Whether a host was killed since the last
   * call.
   */
  async survived(): Promise<boolean> {
    if (this.#killed === undefined || service.hosts.length > 0) return false;
    await this.#killed;
    await pass(6 * MINUTE_MS);
    lines.push((await service.addHost()).lines);
    return true;
  }

  disarm(): void {
    clearInterval(this.#watch);
    service.tables.heal();
    if (this.#fault !== undefined) service.cloud.control.removeFault(this.#fault);
  }

  #kill(): void {
    this.#killed ??= service.hosts.splice(0)[0]!.stop("SIGKILL");
    clearInterval(this.#watch);
  }
}

/** Repeats a request while hosts crash during their responses. */
async function insist(death: SimulatedCrash, ask: () => Promise<Answer>): Promise<Answer> {
  for (;;) {
    await death.survived();
    try {
      return await ask();
    } catch (error) {
      if (!death.happened || service.hosts.length > 0) throw error;
    }
  }
}

// biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
type Rotation = any;

async function followed(id: string, death: SimulatedCrash): Promise<Rotation> {
  let [seen, still] = ["", 0];
  for (let looks = 0; looks < 1200; looks++) {
    const { body, text } = await insist(death, () => admin("GET", `/api/automation/rotation/rotations/${id}`));
    if (body.endedAt !== null || body.attention !== null) return body;
    still = text === seen ? still + 1 : 0;
    seen = text;
    const wait = Date.parse(body.nextAt) - now();
    if (wait > 0) await pass(wait + SECOND_MS);
    else if (still > 0 && still % 60 === 0) await pass(16 * MINUTE_MS);
    if (still > 0 && still % 20 === 0) await insist(death, wake);
    await delay(30);
  }
  throw new Error(`It does not end: ${seen}`);
}

type Outcome = "completed" | "rolledBack";

/** Runs one rotation in which a host crashes at the given moment, if it is reached. */
async function rotated(outcome: Outcome, moment: Moment) {
  const { control } = service.cloud;
  const { consumers } = control;
  const [before, value] = [control.secretValue(VAULT, SECRET)!, `a-new-value-${values.length}-of-the-secret`];
  values.push(value);
  consumers.accept(PLACE, value, true);
  const failing = `${consumers.idOf("api-shop")}/namedValues/db`;
  consumers.plantNamedValue(failing, outcome === "rolledBack");
  await pass(10 * MINUTE_MS);
  token = await service.signIn(ADMIN);
  control.resetCounts();
  const where = `${outcome}, killed ${moment.how} ${moment.of} ${moment.at}, SEED=${SEED}`;
  const death = new SimulatedCrash(moment);
  try {
    const body = { newValue: value, includeResources: included };
    const path = `/api/assets/dependencies/rotate/${VAULT}.secret.${SECRET}`;
    const started = await insist(death, () => admin("POST", path, body));
    // Whose answer was lost asks again.
    expect([201, ...(death.happened ? [409] : [])], `${where}: ${started.text}`).toContain(started.status);
    const row = await followed(started.body.rotationId, death);
    const steps = { writes: death.writes, calls: control.counts().total! };
    expect(row.status, `${where}: ${JSON.stringify(row)}`).toBe(outcome);
    await standsAs(outcome === "completed" ? value : before, row, where);
    return { died: death.happened, steps };
  } finally {
    death.disarm();
  }
}

/** Checks the invariants after a rotation, whichever host crashed. */
async function standsAs(value: string, row: Rotation, where: string): Promise<void> {
  const { control } = service.cloud;
  const { consumers } = control;
  expect(control.secretValue(VAULT, SECRET), where).toBe(value);
  for (const { id, how, state, ...rest } of row.consumers) {
    if (id.toLowerCase() === leftOut.toLowerCase()) expect(rest.included, where).toBe(false);
    else if (row.status === "completed") expect([id, state], where).toEqual([id, "verified"]);
    else if (how === "action") expect([id, state], where).toEqual([id, "restored"]);
  }
  expect(consumers.calls()[leftOut.toLowerCase()] ?? 0, where).toBe(0);
  // Automatic consumers may have had another value for a while.
  await pass(31 * MINUTE_MS);
  const held = consumers.values(PLACE).filter(({ resource }) => !resource.startsWith(leftOut));
  expect(held.length, where).toBe(included.length);
  for (const { resource, values: over } of held) {
    expect([resource, over.at(-1)!.value === value], where).toEqual([resource, true]);
  }
  expect([consumers.gaps(), control.directory.gaps()], where).toEqual([[], []]);
  if (heldNow().length > 0) {
    // The timer removes a held copy of a crashed request.
    await pass(2 * 60 * MINUTE_MS);
    await wake();
  }
  await expect.poll(heldNow, { timeout: 150_000, message: where }).toEqual([]);
  await keptSecret(JSON.stringify(row), where);
}

/** No value is in a log, a row, a message or an answer. */
async function keptSecret(answer: string, where: string): Promise<void> {
  const connection = service.azurite.connectionString();
  const options = { allowInsecureConnection: true };
  const kept: unknown[] = [lines, answer];
  for await (const { name } of TableServiceClient.fromConnectionString(connection, options).listTables()) {
    const rows = TableClient.fromConnectionString(connection, name!, options).listEntities();
    for await (const page of rows.byPage({ maxPageSize: 1000 })) kept.push(page);
  }
  const queues = QueueServiceClient.fromConnectionString(connection);
  for await (const { name } of queues.listQueues()) {
    const { peekedMessageItems } = await queues.getQueueClient(name).peekMessages({ numberOfMessages: 32 });
    kept.push(
      peekedMessageItems.map(({ messageText }) => [messageText, Buffer.from(messageText, "base64").toString()]),
    );
  }
  const everything = JSON.stringify(kept);
  expect(everything).toContain(SECRET);
  for (const value of values) {
    for (const form of [value, Buffer.from(value).toString("base64")]) {
      expect(everything.includes(form), where).toBe(false);
    }
  }
}

const drawn = (within: number): number => 1 + Math.floor(dice.next() * within);
const HOW: Moment["how"][] = ["before", "after"];

if (IS_CAMPAIGN) {
  test.each<Outcome>(["completed", "rolledBack"])(
    `killed at ${DEATHS} moments of a rotation that ends %s, it ends in the same way`,
    { timeout: 1_800_000 },
    async (outcome) => {
      const { steps } = await rotated(outcome, { of: "write", at: Number.POSITIVE_INFINITY, how: "before" });
      expect(Math.min(steps.writes, steps.calls)).toBeGreaterThanOrEqual(LEAST_STEPS);
      const died: string[] = [];
      let rotations = 0;
      while (died.length < DEATHS) {
        expect(++rotations).toBeLessThan(2 * DEATHS);
        const of = died.length % 2 === 0 ? "write" : "call";
        // Spread over the whole rotation. Moments after its end are drawn again.
        const among = steps[`${of}s`];
        const part = Math.ceil(among / DEATHS);
        const at = Math.max(1, Math.floor((died.length * among) / DEATHS) + drawn(part));
        const moment: Moment = { of, at: rotations > died.length + 1 ? drawn(among) : at, how: HOW[drawn(2) - 1]! };
        if ((await rotated(outcome, moment)).died) died.push(`${moment.how} ${of} ${moment.at}`);
      }
      console.info(
        `${outcome}: ${died.length} crashes in ${rotations} rotations of ${JSON.stringify(steps)}: ${died.join(", ")}; SEED=${SEED}`,
      );
    },
  );
} else {
  test("killed at a moment, another host continues to the end", { timeout: 300_000 }, async () => {
    const outcome: Outcome = dice.oneIn(2) ? "completed" : "rolledBack";
    const of = dice.oneIn(2) ? "write" : "call";
    const moment: Moment = { of, at: drawn(LEAST_STEPS), how: HOW[drawn(2) - 1]! };
    expect((await rotated(outcome, moment)).died).toBe(true);
  });
}
