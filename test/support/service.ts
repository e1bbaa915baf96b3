import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { startAzurite } from "../../infra/local/azurite.ts";
import { type Cloud, startCloud } from "../../infra/local/cloud/cloud.ts";
import type { Company, SizedCompany } from "../../infra/local/cloud/company/company.ts";
import { type RunningHost, runHost } from "../host/run-host.ts";
import { Conformance, type Description } from "./conformance.ts";
import { openStorage, type TestStorage } from "./storage.ts";
import { startTableProxy } from "./table-proxy.ts";
import { TEST_APP } from "./test-app.ts";

/** Also in this process, for users that a test makes itself. */
import "./cheap-scrypt.mjs";

const CHEAP_SCRYPT = new URL("./cheap-scrypt.mjs", import.meta.url).href;
const SHORT_WAITS = new URL("./short-waits.mjs", import.meta.url).href;

export const ADMIN = { username: "admin", password: "correct-horse-battery" };

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  /** The parsed body, of whatever shape the test knows it to have. */
  // biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
  body: any;
}

export interface CallOptions {
  token?: string | undefined;
  body?: unknown;
  headers?: Record<string, string>;
}

/** The whole service as it runs on one machine: storage, stand-in cloud, functions host with the built app. */
export class Service {
  readonly azurite: TestStorage;
  readonly cloud: Cloud;
  readonly tables: Awaited<ReturnType<typeof startTableProxy>>;
  readonly hosts: RunningHost[] = [];
  readonly environment: Record<string, string>;
  private readonly lease: number;
  private conformance: Conformance | undefined;
  private token: string | undefined;

  private constructor(parts: Pick<Service, "azurite" | "cloud" | "tables" | "environment">, lease: number) {
    this.azurite = parts.azurite;
    this.cloud = parts.cloud;
    this.tables = parts.tables;
    this.environment = parts.environment;
    this.lease = lease;
  }

  /** Starts it with one host. Rate limits are off unless `env` sets them. */
  static async start(
    options: {
      company?: Company | SizedCompany | string;
      env?: Record<string, string>;
      hosts?: number;
      lease?: number;
      /** Added to the environment of storage, such as that of a moved clock. */
      storageEnv?: Record<string, string>;
      /** The hosts' waits between tries of a call take a fortieth (short-waits.mjs). */
      shortWaits?: boolean;
      /** The hosts' password hashes cost what they do in production (cheap-scrypt.mjs). The test must not make users itself. */
      realScrypt?: boolean;
    } = {},
  ): Promise<Service> {
    const { storageEnv } = options;
    const azurite = await (storageEnv ? startAzurite({ environment: storageEnv }) : openStorage());
    const [cloud, tables] = await Promise.all([
      startCloud({ company: options.company ?? "small" }),
      startTableProxy(azurite.connectionString()),
    ]);
    const environment: Record<string, string> = {
      ...cloud.environment,
      AzureWebJobsStorage: tables.connectionString,
      JWT_SIGNING_KEYS: `test:${randomBytes(32).toString("base64")}`,
      AUDIT_SIGNING_KEYS: `test:${randomBytes(32).toString("base64")}`,
      BOOTSTRAP_ADMIN_USERNAME: ADMIN.username,
      BOOTSTRAP_ADMIN_PASSWORD: ADMIN.password,
      RATE_LIMIT_PER_MINUTE: "0",
      RATE_LIMIT_PER_HOUR: "0",
      // Only what a test starts runs: the schedules are far away.
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
      ...options.env,
    };
    const preloads = [...(options.shortWaits ? [SHORT_WAITS] : []), ...(options.realScrypt ? [] : [CHEAP_SCRYPT])];
    environment.NODE_OPTIONS = [environment.NODE_OPTIONS ?? "", ...preloads.map((url) => `--import=${url}`)].join(" ");
    const service = new Service({ azurite, cloud, tables, environment }, options.lease ?? 5);
    for (let host = 0; host < (options.hosts ?? 1); host++) await service.addHost();
    return service;
  }

  async addHost(extra: Record<string, string> = {}, args: string[] = []): Promise<RunningHost> {
    const host = await runHost({
      app: TEST_APP,
      env: { ...this.environment, ...extra },
      args: ["--lease", String(this.lease), "--inspect-modules", ...args],
    });
    this.hosts.push(host);
    return host;
  }

  get url(): string {
    return this.hosts[0]!.url;
  }

  /** Requests to the tables since `forgetTables`, without those of the local host's own timers. */
  tableRequests() {
    return this.tables.requests.filter((request) => !request.path.startsWith("LocalHostLeases"));
  }

  forgetTables(): void {
    this.tables.requests.length = 0;
  }

  /** A call as it is; the answer is held against the service's description. `path` may be a whole address. */
  async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const address = path.startsWith("http") ? path : this.url + path;
    const answer = await fetch(address, {
      method,
      redirect: "manual",
      headers: {
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
    this.conformance ??= new Conformance((await (await fetch(`${this.url}/openapi.json`)).json()) as Description);
    this.conformance.check(method, new URL(address).pathname, answer.status, type, text);
    return {
      status: answer.status,
      headers: answer.headers,
      text,
      body: type?.includes("json") ? JSON.parse(text) : undefined,
    };
  }

  /** A call as the administrator. */
  async admin(method: string, path: string, body?: unknown): Promise<Answer> {
    this.token ??= await this.signIn(ADMIN);
    return await this.call(method, path, { token: this.token, body });
  }

  async signIn(user: { username: string; password: string }): Promise<string> {
    const answer = await this.call("POST", "/auth/login", { body: user });
    if (answer.status !== 200) throw new Error(`Signing in answered ${answer.status}: ${answer.text}`);
    return answer.body.access_token;
  }

  /** Starts a scan and waits for its end. Answers its last status. */
  // biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
  async scan(request: object = { mode: "full" }, timeoutMs = 60_000): Promise<any> {
    const started = await this.admin("POST", "/api/assets/discovery/scan", request);
    if (started.status !== 201) throw new Error(`Starting a scan answered ${started.status}: ${started.text}`);
    return await this.scanEnds(started.body.scanId, timeoutMs);
  }

  // biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
  async scanEnds(scanId: string, timeoutMs = 60_000): Promise<any> {
    const end = Date.now() + timeoutMs;
    for (;;) {
      const { body } = await this.admin("GET", `/api/assets/discovery/scan/${scanId}/status`);
      if (body.status !== "queued" && body.status !== "running") return body;
      if (Date.now() > end) throw new Error(`The scan is still ${body.status}: ${JSON.stringify(body)}`);
      await delay(100);
    }
  }

  /** Everything of a list, walked by cursor. */
  // biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
  async all(path: string): Promise<any[]> {
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
    await Promise.all(this.hosts.map((host) => host.stop("SIGKILL")));
    await Promise.all([this.cloud.stop(), this.tables.stop()]);
    await this.azurite.stop();
  }
}
