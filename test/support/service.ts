import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { QueueServiceClient } from "@azure/storage-queue";
import { type RunningHost, runHost } from "functions-host/test/run-host.ts";
import { type Cloud, startCloud } from "simulated-cloud/cloud.ts";
import type { Company, SizedCompany } from "simulated-cloud/company/company.ts";
import { startAzurite } from "../../infra/local/azurite.ts";
import { Conformance, type Description } from "./conformance.ts";
import { openStorage, type TestStorage } from "./storage.ts";
import { type SeenRequest, startTableProxy, type TableProxy } from "./table-proxy.ts";
import { CLOUD_KEYS, TEST_APP } from "./test-app.ts";

// Starts the built service with a storage emulator and the simulated cloud, and calls it over HTTP. Most HTTP tests use it.

const INVOCATIONS = new URL("./invocations.mjs", import.meta.url).href;
const SHORT_WAITS = new URL("./short-waits.mjs", import.meta.url).href;

/** The bootstrap administrator of every started service. */
export const ADMIN = { username: "admin", password: "correct-horse-battery" };

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  /** The parsed body. */
  // biome-ignore lint/suspicious/noExplicitAny: each test knows the shape of its response
  body: any;
  /** Returns the table requests that this call caused, unless `clearTableRequests` removed them. */
  tableRequests(): SeenRequest[];
}

export interface CallOptions {
  token?: string | undefined;
  body?: unknown;
  headers?: Record<string, string>;
}

/**
 * The check against the OpenAPI document. All test files of this process share it, because all hosts run the same build, and a
 * host needs half a second to create the document.
 */
const processState = globalThis as { conformance?: Promise<Conformance> | undefined };

async function readConformance(url: string): Promise<Conformance> {
  try {
    return new Conformance((await (await fetch(`${url}/openapi.json`)).json()) as Description);
  } catch (error) {
    processState.conformance = undefined;
    throw error;
  }
}

/**
 * The whole service on one machine, for tests: Azurite as storage, a simulated Azure, and one or more functions hosts that run
 * the built app. Tests call it over HTTP.
 */
export class Service {
  readonly azurite: TestStorage;
  readonly cloud: Cloud;
  private readonly proxy: TableProxy | undefined;
  readonly hosts: RunningHost[] = [];
  /** All started hosts, including those that a test removed from `hosts`. */
  private readonly startedHosts: RunningHost[] = [];
  readonly environment: Record<string, string>;
  private readonly hostArguments: string[];
  private token: string | undefined;
  private calls = 0;

  private constructor(
    parts: Pick<Service, "azurite" | "cloud" | "environment">,
    proxy: TableProxy | undefined,
    hostArguments: string[],
  ) {
    this.azurite = parts.azurite;
    this.cloud = parts.cloud;
    this.proxy = proxy;
    this.environment = parts.environment;
    this.hostArguments = hostArguments;
  }

  /** Starts the service, by default with one host. Rate limits are off unless `env` sets them. */
  static async start(
    options: {
      company?: Company | SizedCompany | string;
      env?: Record<string, string>;
      hosts?: number;
      /** Seconds until the messages of a killed host are redelivered. The default is that of Azure Functions. */
      lease?: number;
      /**
       * Whether timers run on schedule. By default, timers run only if a test fires them, because test runs at any time of day
       * must give the same result.
       */
      schedules?: boolean;
      /** Whether the hosts reach the tables through `tables`, which counts their requests and simulates faults. */
      tableProxy?: boolean;
      /** Added to the environment of storage, for example for a clock that is ahead. */
      storageEnv?: Record<string, string>;
      /** Whether the hosts' pauses between retries last a fortieth of the time (short-waits.mjs). */
      shortWaits?: boolean;
    } = {},
  ): Promise<Service> {
    const { storageEnv } = options;
    const azurite = await (storageEnv ? startAzurite({ environment: storageEnv }) : openStorage());
    const [cloud, proxy] = await Promise.all([
      startCloud({ company: options.company ?? "small", keys: CLOUD_KEYS }),
      options.tableProxy ? startTableProxy(azurite.connectionString()) : undefined,
    ]);
    const environment: Record<string, string> = {
      ...cloud.environment,
      AzureWebJobsStorage: proxy?.connectionString ?? azurite.connectionString(),
      JWT_SIGNING_KEYS: `test:${randomBytes(32).toString("base64")}`,
      AUDIT_SIGNING_KEYS: `test:${randomBytes(32).toString("base64")}`,
      BOOTSTRAP_ADMIN_USERNAME: ADMIN.username,
      BOOTSTRAP_ADMIN_PASSWORD: ADMIN.password,
      RATE_LIMIT_PER_MINUTE: "0",
      RATE_LIMIT_PER_HOUR: "0",
      // On January 1, so that work starts only if a test starts it, even with `schedules`.
      DELTA_SCAN_SCHEDULE: "0 0 0 1 1 *",
      FULL_SCAN_SCHEDULE: "0 0 0 1 1 *",
      RECONCILIATION_SCHEDULE: "0 0 0 1 1 *",
      APPLICATIONS_SCHEDULE: "0 0 0 1 1 *",
      APPLICATION_CHANGES_SCHEDULE: "0 0 0 1 1 *",
      B2C_SCHEDULE: "0 0 0 1 1 *",
      ROTATION_SCHEDULE: "0 0 0 1 1 *",
      SYNC_SCHEDULE: "0 0 0 1 1 *",
      DEPENDENCIES_SCHEDULE: "0 0 0 1 1 *",
      DEPENDENCY_CHANGES_SCHEDULE: "0 0 0 1 1 *",
      SCHEDULE_JITTER_SECONDS: "0",
      FIRST_SCAN: "off",
      ...options.env,
    };
    const preloads = [INVOCATIONS, ...(options.shortWaits ? [SHORT_WAITS] : [])];
    environment.NODE_OPTIONS = [
      process.env.NODE_OPTIONS ?? "",
      environment.NODE_OPTIONS ?? "",
      ...preloads.map((url) => `--import=${url}`),
    ].join(" ");
    const hostArguments = [
      ...(options.lease === undefined ? [] : ["--lease", String(options.lease)]),
      ...(options.schedules ? [] : ["--no-schedules"]),
    ];
    const service = new Service({ azurite, cloud, environment }, proxy, hostArguments);
    for (let host = 0; host < (options.hosts ?? 1); host++) await service.addHost();
    return service;
  }

  /** Starts another host with the same storage and cloud, and adds it to `hosts`. */
  async addHost(extra: Record<string, string> = {}, args: string[] = []): Promise<RunningHost> {
    const host = await runHost({
      app: TEST_APP,
      env: { ...this.environment, ...extra },
      args: [...this.hostArguments, "--inspect-modules", ...args],
    });
    this.hosts.push(host);
    this.startedHosts.push(host);
    return host;
  }

  get url(): string {
    return this.hosts[0]!.url;
  }

  get tables(): TableProxy {
    if (!this.proxy) throw new Error("Start the service with `tableProxy` to count or fail table requests.");
    return this.proxy;
  }

  /** Returns the table requests since `clearTableRequests`, without those of the functions host itself. */
  tableRequests() {
    return this.tables.requests.filter((request) => !request.path.startsWith("LocalHostLeases"));
  }

  /** Returns the table requests of functions that messages started, without those of HTTP calls and timers. */
  queueRequests() {
    const queueFunctions = new Set(
      this.hosts.flatMap(({ functions }) =>
        functions.filter(({ trigger }) => trigger === "queueTrigger").map(({ name }) => name),
      ),
    );
    return this.tableRequests().filter(({ by }) => by !== undefined && queueFunctions.has(by));
  }

  /** Returns the number of messages that the hosts received, according to their logs. */
  countMessages(): number {
    return this.hosts.reduce((sum, { lines, functions }) => {
      const queueFunctions = new Set(
        functions.filter(({ trigger }) => trigger === "queueTrigger").map(({ name }) => name),
      );
      const starts = lines.filter((line) => queueFunctions.has(/ Executing 'Functions\.(\w+)'/.exec(line)?.[1] ?? ""));
      return sum + starts.length;
    }, 0);
  }

  /** Empties the list of table requests, to count those that follow. */
  clearTableRequests(): void {
    this.tables.requests.length = 0;
  }

  /**
   * Sends a request and compares the response with the OpenAPI document.
   *
   * @param path - A path on the first host, or a full address.
   * @throws {Error} If the response does not match the document.
   */
  async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const address = path.startsWith("http") ? path : this.url + path;
    const by = `call ${++this.calls}`;
    const answer = await fetch(address, {
      method,
      redirect: "manual",
      headers: {
        "x-test-by": by,
        ...(options.token === undefined ? {} : { Authorization: `Bearer ${options.token}` }),
        ...(options.body === undefined ? {} : { "Content-Type": "application/json" }),
        ...options.headers,
      },
      ...(options.body === undefined
        ? {}
        : { body: typeof options.body === "string" ? options.body : JSON.stringify(options.body) }),
    });
    const text = await answer.text();
    const type = answer.headers.get("content-type");
    processState.conformance ??= readConformance(this.url);
    (await processState.conformance).check(method, new URL(address).pathname, answer.status, type, text);
    return {
      status: answer.status,
      headers: answer.headers,
      text,
      body: type?.includes("json") && text !== "" ? JSON.parse(text) : undefined,
      tableRequests: () => this.tables.requests.filter((request) => request.by === by),
    };
  }

  /** Sends a request as the administrator. */
  async admin(method: string, path: string, body?: unknown): Promise<Answer> {
    this.token ??= await this.signIn(ADMIN);
    return await this.call(method, path, { token: this.token, body });
  }

  /** Signs a user in, for example one of `createUsers`, and returns the token for `call`. */
  async signIn({ username, password }: { username: string; password: string }): Promise<string> {
    const answer = await this.call("POST", "/auth/login", { body: { username, password } });
    if (answer.status !== 200) throw new Error(`Signing in answered ${answer.status}: ${answer.text}`);
    return answer.body.access_token;
  }

  /** Starts a scan, waits until it has ended, and returns its last status. */
  // biome-ignore lint/suspicious/noExplicitAny: each test knows the shape of its response
  async scan(request: object = { mode: "full" }, timeoutMs = 150_000): Promise<any> {
    const started = await this.admin("POST", "/api/assets/discovery/scan", request);
    if (started.status !== 201) throw new Error(`Starting a scan answered ${started.status}: ${started.text}`);
    return await this.waitForScan(started.body.scanId, timeoutMs);
  }

  /** Waits until a scan has ended, and returns its last status. */
  // biome-ignore lint/suspicious/noExplicitAny: each test knows the shape of its response
  async waitForScan(scanId: string, timeoutMs = 150_000): Promise<any> {
    const deadline = Date.now() + timeoutMs;
    for (;;) {
      const { body } = await this.admin("GET", `/api/assets/discovery/scan/${scanId}/status`);
      if (body.status !== "queued" && body.status !== "running") return body;
      if (Date.now() > deadline) throw new Error(`The scan is still ${body.status}: ${JSON.stringify(body)}`);
      await delay(100);
    }
  }

  /** Waits until every queue is empty, including messages that other messages caused. */
  async waitForEmptyQueues(timeoutMs = 150_000): Promise<void> {
    const queues = QueueServiceClient.fromConnectionString(this.azurite.connectionString());
    // A received message counts until its function has completed.
    const hasMessages = async (name: string) =>
      ((await queues.getQueueClient(name).getProperties()).approximateMessagesCount ?? 0) > 0;
    const findNonEmptyQueue = async () => {
      for await (const { name } of queues.listQueues()) if (await hasMessages(name)) return name;
      return undefined;
    };
    // Counts twice, because a message can cause another one in a queue that was counted before.
    const deadline = Date.now() + timeoutMs;
    for (;;) {
      const nonEmptyQueue = (await findNonEmptyQueue()) ?? (await findNonEmptyQueue());
      if (nonEmptyQueue === undefined) return;
      // Only this queue, because each look at all queues takes the time of many requests from the service.
      do {
        if (Date.now() > deadline) throw new Error(`There are still messages in ${nonEmptyQueue}`);
        await delay(100);
      } while (await hasMessages(nonEmptyQueue));
    }
  }

  /** Waits until no function runs and no message is visible. Messages with a visibility delay are ignored. */
  async waitUntilIdle(timeoutMs = 150_000): Promise<void> {
    const queues = QueueServiceClient.fromConnectionString(this.azurite.connectionString());
    const hasVisibleMessage = async () => {
      for await (const { name } of queues.listQueues())
        if ((await queues.getQueueClient(name).peekMessages()).peekedMessageItems.length > 0) return true;
      return false;
    };
    const countLines = (text: string) =>
      this.hosts.reduce((sum, host) => sum + host.lines.filter((line) => line.includes(text)).length, 0);
    const countStarts = () => countLines("Executing 'Functions.");
    // No function was running, no message was visible, and no function started during the check.
    const isIdle = async () => {
      const starts = countStarts();
      const noneRunning = starts === countLines("Executed 'Functions.");
      return noneRunning && !(await hasVisibleMessage()) && countStarts() === starts;
    };
    // Checks twice, because a function that received a message may not have logged its start yet.
    const deadline = Date.now() + timeoutMs;
    while (!(await isIdle()) || !(await isIdle())) {
      if (Date.now() > deadline) throw new Error("Functions are still running");
      await delay(100);
    }
  }

  /** Returns the items of all pages of a list. */
  // biome-ignore lint/suspicious/noExplicitAny: each test knows the shape of its response
  async listAll(path: string): Promise<any[]> {
    const items = [];
    let cursor: string | null = null;
    do {
      const separator = path.includes("?") ? "&" : "?";
      const { body, status, text }: Answer = await this.admin(
        "GET",
        `${path}${separator}limit=1000${cursor === null ? "" : `&cursor=${cursor}`}`,
      );
      if (status !== 200) throw new Error(`${path} answered ${status}: ${text}`);
      items.push(...body.items);
      cursor = body.nextCursor;
    } while (cursor !== null);
    return items;
  }

  async stop(): Promise<void> {
    await Promise.all(this.startedHosts.map((host) => host.stop("SIGKILL")));
    await Promise.all([this.cloud.stop(), this.proxy?.stop()]);
    await this.azurite.stop();
  }
}
