import { setTimeout as delay } from "node:timers/promises";
import { TableClient, TableServiceClient } from "@azure/data-tables";
import { QueueServiceClient } from "@azure/storage-queue";
import { Dice } from "simulated-cloud/company/dice.ts";
import type { CompanyResource } from "simulated-cloud/company/resources.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { licence } from "../support/licence.ts";
import { movedClock } from "../support/moved-clock.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { ADMIN, type Answer, Service } from "../support/service.ts";

/**
 * Tests that a rotation of a vault secret continues after its host process was killed with SIGKILL. The process is killed at a
 * random table write or cloud call, before or after it is carried out. A campaign, the long test run, kills 15 rotations of
 * each outcome. The normal suite kills one.
 */

/** Number of rotations that a campaign kills for each outcome. */
const KILLS_PER_OUTCOME = 15;
/** Minimum number of table writes, and of cloud calls, of one rotation. */
const MIN_STEPS = 24;

const [VAULT, SECRET, SERVICE_VAULT] = ["kv-shop", "db", "kv-lifecycle-service"];
const SECRET_PLACE = { vault: VAULT, secret: SECRET };
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
/** Log lines of each host, also of killed ones. */
const hostLogs: string[][] = [];
const secretValues = ["value-before-everything"];
let service: Service;
/** Resource IDs of all consumers except `leftOut`, which no rotation includes. */
let included: string[];
let leftOut: string;
let token: string | undefined;

beforeAll(async () => {
  service = await Service.start({
    tableProxy: true,
    company: {
      subscriptions: [
        { name: "Shop", vaults: [{ name: VAULT, secrets: [{ name: SECRET, value: secretValues[0]! }] }], resources },
      ],
    },
    lease: 1,
    env: { LICENSE_KEY: await licence() },
    storageEnv: storageClock.environment,
  });
  hostLogs.push(service.hosts[0]!.lines);
  expect(await service.scan()).toMatchObject({ status: "completed" });
  expect((await admin("POST", "/api/assets/dependencies/discover")).body).toMatchObject({ status: "completed" });
  const { consumers } = service.cloud.control;
  consumers.setIssuer(SECRET_PLACE);
  leftOut = consumers.idOf("app-left-out", "Microsoft.Web/sites");
  included = resources.map(({ name, type }) => consumers.idOf(name, type)).filter((id) => id !== leftOut);
});
afterAll(async () => {
  await service?.stop();
  storageClock.remove();
});

const storedCopies = (): string[] =>
  service.cloud.control
    .items(SERVICE_VAULT, "secrets")
    .map(({ name }) => name)
    .filter((name) => name.startsWith("rotation-"));

/** Sends a request as the administrator. Signs in again if the token has expired, because tests skip days. */
async function admin(method: string, path: string, body?: unknown): Promise<Answer> {
  token ??= await service.signIn(ADMIN);
  const answer = await service.call(method, path, { token, body });
  if (answer.status !== 401) return answer;
  token = await service.signIn(ADMIN);
  return await service.call(method, path, { token, body });
}

let clockOffsetMs = 0;
const currentTimeMs = (): number => Date.now() + clockOffsetMs;
async function advanceClock(milliseconds: number): Promise<void> {
  clockOffsetMs += milliseconds;
  service.cloud.control.moveClock(milliseconds);
  await storageClock.add(milliseconds);
}

async function runRotationTimer(): Promise<Answer> {
  return await service.call("POST", "/admin/functions/wakeRotations", { body: {} });
}

/** Moment at which the host is killed. */
interface KillMoment {
  /** A write to the tables or a call to the cloud. */
  kind: "write" | "call";
  /** Number of the write or call, counted from 1 at the request of the rotation. Infinity: the host is never killed. */
  at: number;
  /** Whether the host is killed before or after the write or call is carried out. */
  how: "before" | "after";
}

/** Kills the host once, at the given moment. */
class HostKill {
  #killed: Promise<unknown> | undefined;
  #writes = 0;
  readonly #fault: string | undefined;
  readonly #watch: NodeJS.Timeout | undefined;

  constructor({ kind, at, how }: KillMoment) {
    const { control } = service.cloud;
    service.tables.fail([how === "before" ? "LostRequest" : "LostAnswer"], ({ method, path }) => {
      if (method === "GET" || path.startsWith("LocalHostLeases") || ++this.#writes !== at || kind !== "write")
        return false;
      this.#kill();
      return true;
    });
    if (kind === "write" || at === Number.POSITIVE_INFINITY) return;
    const action = { kind: how === "before" ? ("hang" as const) : ("hangAfter" as const) };
    const id = control.addFault({ action, times: 1, after: at - 1 });
    this.#fault = id;
    this.#watch = setInterval(() => {
      if (control.faults().some((one) => one.id === id && one.happened > 0)) this.#kill();
    }, 10);
  }

  /** Number of table writes since the object was created. */
  get writes(): number {
    return this.#writes;
  }

  get happened(): boolean {
    return this.#killed !== undefined;
  }

  /**
   * Starts another host if the host was killed, and returns whether it did. First moves the clock by 6 minutes, so that the
   * leases of the killed host expire.
   */
  async replaceKilledHost(): Promise<boolean> {
    if (this.#killed === undefined || service.hosts.length > 0) return false;
    await this.#killed;
    await advanceClock(6 * MINUTE_MS);
    hostLogs.push((await service.addHost()).lines);
    return true;
  }

  disarm(): void {
    clearInterval(this.#watch);
    service.tables.removeFaults();
    if (this.#fault !== undefined) service.cloud.control.removeFault(this.#fault);
  }

  #kill(): void {
    this.#killed ??= service.hosts.splice(0)[0]!.stop("SIGKILL");
    clearInterval(this.#watch);
  }
}

/** Sends a request, and repeats it on the new host if the host was killed before it responded. */
async function retryDuringKill(hostKill: HostKill, sendRequest: () => Promise<Answer>): Promise<Answer> {
  for (;;) {
    await hostKill.replaceKilledHost();
    try {
      return await sendRequest();
    } catch (error) {
      if (!hostKill.happened || service.hosts.length > 0) throw error;
    }
  }
}

// biome-ignore lint/suspicious/noExplicitAny: the body of a response, whose members the tests check
type Rotation = any;

/** Polls the rotation, and skips waiting times, until it ends or needs attention. */
async function waitForEnd(id: string, hostKill: HostKill): Promise<Rotation> {
  let [lastText, unchangedPolls] = ["", 0];
  for (let poll = 0; poll < 1200; poll++) {
    const { body, text } = await retryDuringKill(hostKill, () =>
      admin("GET", `/api/automation/rotation/rotations/${id}`),
    );
    if (body.endedAt !== null || body.attention !== null) return body;
    unchangedPolls = text === lastText ? unchangedPolls + 1 : 0;
    lastText = text;
    const wait = Date.parse(body.nextAt) - currentTimeMs();
    if (wait > 0) await advanceClock(wait + SECOND_MS);
    // If the killed host had the queue message, the timer sends another one 15 minutes after the due time.
    else if (unchangedPolls > 0 && unchangedPolls % 60 === 0) await advanceClock(16 * MINUTE_MS);
    if (unchangedPolls > 0 && unchangedPolls % 20 === 0) await retryDuringKill(hostKill, runRotationTimer);
    await delay(30);
  }
  throw new Error(`The rotation does not end: ${lastText}`);
}

type Outcome = "completed" | "rolledBack";

/** Runs one rotation in which the host is killed at the given moment, if the rotation reaches it. Checks the outcome. */
async function rotateWithKill(outcome: Outcome, moment: KillMoment) {
  const { control } = service.cloud;
  const { consumers } = control;
  const [oldValue, value] = [control.secretValue(VAULT, SECRET)!, `a-new-value-${secretValues.length}-of-the-secret`];
  secretValues.push(value);
  // The issuer is the simulated system that checks the secret, for example a database. It accepts the old and the new value.
  consumers.accept(SECRET_PLACE, value, true);
  // A consumer that never reads the new value makes the rotation roll back.
  const failing = `${consumers.idOf("api-shop")}/namedValues/db`;
  consumers.setNamedValueStaysOld(failing, outcome === "rolledBack");
  await advanceClock(10 * MINUTE_MS);
  token = await service.signIn(ADMIN);
  control.resetCounts();
  const where = `${outcome}, killed ${moment.how} ${moment.kind} ${moment.at}, SEED=${SEED}`;
  const hostKill = new HostKill(moment);
  try {
    const body = { newValue: value, includeResources: included };
    const path = `/api/assets/dependencies/rotate/${VAULT}.secret.${SECRET}`;
    const started = await retryDuringKill(hostKill, () => admin("POST", path, body));
    // A repeated request gets 409 if the first one started the rotation.
    expect([201, ...(hostKill.happened ? [409] : [])], `${where}: ${started.text}`).toContain(started.status);
    const row = await waitForEnd(started.body.rotationId, hostKill);
    const steps = { writes: hostKill.writes, calls: control.counts().total! };
    expect(row.status, `${where}: ${JSON.stringify(row)}`).toBe(outcome);
    await expectFinalState(outcome === "completed" ? value : oldValue, row, where);
    return { wasKilled: hostKill.happened, steps };
  } finally {
    hostKill.disarm();
  }
}

/**
 * Checks that the vault and its consumers have `value`, that no consumer had an outage, and that no copy of a value remains.
 */
async function expectFinalState(value: string, row: Rotation, where: string): Promise<void> {
  const { control } = service.cloud;
  const { consumers } = control;
  expect(control.secretValue(VAULT, SECRET), where).toBe(value);
  for (const { id, how, state, ...rest } of row.consumers) {
    if (id.toLowerCase() === leftOut.toLowerCase()) expect(rest.included, where).toBe(false);
    else if (row.status === "completed") expect([id, state], where).toEqual([id, "verified"]);
    else if (how === "action") expect([id, state], where).toEqual([id, "restored"]);
  }
  expect(consumers.calls()[leftOut.toLowerCase()] ?? 0, where).toBe(0);
  // A container app can have another value until it reads its secrets again, which takes up to 30 minutes.
  await advanceClock(31 * MINUTE_MS);
  const valuesInUse = consumers.values(SECRET_PLACE).filter(({ resource }) => !resource.startsWith(leftOut));
  expect(valuesInUse.length, where).toBe(included.length);
  for (const { resource, values: valuesOverTime } of valuesInUse) {
    expect([resource, valuesOverTime.at(-1)!.value === value], where).toEqual([resource, true]);
  }
  expect([consumers.gaps(), control.directory.gaps()], where).toEqual([[], []]);
  if (storedCopies().length > 0) {
    // The timer removes a copy that a killed request left behind.
    await advanceClock(2 * HOUR_MS);
    await runRotationTimer();
  }
  await expect.poll(storedCopies, { timeout: 150_000, message: where }).toEqual([]);
  await expectNoValueStored(JSON.stringify(row), where);
}

/** Checks that no host log, table, queue or response contains a secret value. */
async function expectNoValueStored(answer: string, where: string): Promise<void> {
  const connection = service.azurite.connectionString();
  const options = { allowInsecureConnection: true };
  const searchedTexts: unknown[] = [hostLogs, answer];
  for await (const { name } of TableServiceClient.fromConnectionString(connection, options).listTables()) {
    const rows = TableClient.fromConnectionString(connection, name!, options).listEntities();
    for await (const page of rows.byPage({ maxPageSize: 1000 })) searchedTexts.push(page);
  }
  const queues = QueueServiceClient.fromConnectionString(connection);
  for await (const { name } of queues.listQueues()) {
    const { peekedMessageItems } = await queues.getQueueClient(name).peekMessages({ numberOfMessages: 32 });
    searchedTexts.push(
      peekedMessageItems.map(({ messageText }) => [messageText, Buffer.from(messageText, "base64").toString()]),
    );
  }
  const everything = JSON.stringify(searchedTexts);
  expect(everything).toContain(SECRET);
  for (const value of secretValues) {
    for (const form of [value, Buffer.from(value).toString("base64")]) {
      expect(everything.includes(form), where).toBe(false);
    }
  }
}

const drawUpTo = (within: number): number => 1 + Math.floor(dice.next() * within);
const KILL_TIMES: KillMoment["how"][] = ["before", "after"];

if (IS_CAMPAIGN) {
  test.each<Outcome>(["completed", "rolledBack"])(
    `a rotation that ends %s does so after each of ${KILLS_PER_OUTCOME} kills`,
    { timeout: 1_800_000 },
    async (outcome) => {
      const { steps } = await rotateWithKill(outcome, { kind: "write", at: Number.POSITIVE_INFINITY, how: "before" });
      expect(Math.min(steps.writes, steps.calls)).toBeGreaterThanOrEqual(MIN_STEPS);
      const kills: string[] = [];
      let rotations = 0;
      while (kills.length < KILLS_PER_OUTCOME) {
        expect(++rotations).toBeLessThan(2 * KILLS_PER_OUTCOME);
        const kind = kills.length % 2 === 0 ? "write" : "call";
        // Kills are spread over the whole rotation. If a rotation ended before the kill, a new moment is drawn.
        const among = steps[`${kind}s`];
        const part = Math.ceil(among / KILLS_PER_OUTCOME);
        const at = Math.max(1, Math.floor((kills.length * among) / KILLS_PER_OUTCOME) + drawUpTo(part));
        const moment: KillMoment = {
          kind,
          at: rotations > kills.length + 1 ? drawUpTo(among) : at,
          how: KILL_TIMES[drawUpTo(2) - 1]!,
        };
        if ((await rotateWithKill(outcome, moment)).wasKilled) kills.push(`${moment.how} ${kind} ${moment.at}`);
      }
      console.info(
        `${outcome}: ${kills.length} kills in ${rotations} rotations of ${JSON.stringify(steps)}: ${kills.join(", ")}; SEED=${SEED}`,
      );
    },
  );
} else {
  test("a rotation whose host is killed ends on another host", { timeout: 300_000 }, async () => {
    const outcome: Outcome = dice.oneIn(2) ? "completed" : "rolledBack";
    const kind = dice.oneIn(2) ? "write" : "call";
    const moment: KillMoment = { kind, at: drawUpTo(MIN_STEPS), how: KILL_TIMES[drawUpTo(2) - 1]! };
    expect((await rotateWithKill(outcome, moment)).wasKilled).toBe(true);
  });
}
