import type { Cloud } from "simulated-cloud/cloud.ts";
import { type Access, createAccess } from "../../shared/access/access.ts";
import { createPasswords } from "../../shared/access/passwords.ts";
import type { Audit, AuditEvent } from "../../shared/audit/audit.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import type { Actor, Tier } from "../../shared/platform/http/endpoint.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { createRateLimiter } from "../../shared/platform/http/rate-limit.ts";
import { type Logger, systemRandomness } from "../../shared/platform/runtime.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import type { SsoChange } from "../../shared/sso/api.ts";
import type { Arrival, Redirection } from "../../shared/sso/sign-ins.ts";
import { createSso, type Sso } from "../../shared/sso/sso.ts";
import { ADMIN, from, HERE, quickly, signingKey } from "../access/instances.ts";
import { configIn, liveIn } from "../azure/live-cloud.ts";
import { ProviderVisitor } from "../support/provider-visitor.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

export { ADMIN, from, HERE };

/** The service's own address: another site than the provider's, on the same machine. */
export const ORIGIN = "http://localhost:7071";
export const ADMINISTRATOR = { ...HERE, actor: ADMIN.username, role: "admin" as const };

/** One instance of the service with the parts that signing in needs. */
export interface Instance {
  access: Access;
  sso: Sso;
  tables: Tables;
}

export interface InstanceOptions {
  tier?: Tier;
  config?: Partial<Config>;
  /** Address of its tables, if not the direct one. */
  connectionString?: string;
  resolve?: (host: string) => Promise<{ address: string; family: number }[]>;
}

/** A storage account and a provider, and any number of instances that use them. Its clock is the provider's. */
export class Deployment {
  readonly connectionString: string;
  readonly cloud: Cloud;
  readonly events: AuditEvent[] = [];
  readonly logged: string[] = [];
  readonly #signingKeys = [signingKey("k1")];
  #ahead = 0;
  readonly clock = { now: () => new Date(Date.now() + this.#ahead) };

  constructor(connectionString: string, cloud: Cloud) {
    this.connectionString = connectionString;
    this.cloud = cloud;
  }

  pass(milliseconds: number): void {
    this.#ahead += milliseconds;
  }

  start(options: InstanceOptions = {}): Instance {
    const { tier = "pro" } = options;
    const { clock, cloud } = this;
    const write = (message: string, fields?: object) => void this.logged.push(`${message} ${JSON.stringify(fields)}`);
    const log: Logger = { debug: write, info: write, warn: write, error: write };
    const randomness = systemRandomness();
    const tables = createTables({ connectionString: options.connectionString ?? this.connectionString }, { log });
    const append = async (event: AuditEvent) => void this.events.push(event);
    const audit = { append, refused: append } as unknown as Audit;
    const config = {
      ...configIn(cloud),
      JWT_SIGNING_KEYS: this.#signingKeys,
      BOOTSTRAP_ADMIN_USERNAME: ADMIN.username,
      BOOTSTRAP_ADMIN_PASSWORD: ADMIN.password,
      PUBLIC_BASE_URL: ORIGIN,
      ...options.config,
    };
    const vault = createServiceKeyVault({ config, identity: createIdentity(config), log });
    const limits = { perMinute: 0, perHour: 0 };
    const access = createAccess({
      tables,
      config,
      clock,
      randomness,
      audit,
      log,
      passwords: createPasswords({ randomness, derive: quickly }),
      limiter: createRateLimiter({ tables, clock, limits, name: "signIn" }),
      passwordSignIn: (username) => sso.passwordSignIn(username),
      roleMapped: () => sso.roleMapped(),
    });
    const sso: Sso = createSso({
      tables,
      config,
      audit,
      access,
      licensing: { tier: async () => tier },
      vault,
      discoverLimiter: createRateLimiter({
        tables,
        clock,
        limits: { perMinute: 10, perHour: 0 },
        name: "ssoDiscover",
      }),
      clock,
      randomness,
      log,
      ...(options.resolve && { resolve: options.resolve }),
    });
    return { access, sso, tables };
  }

  /** The configuration that turns on single sign-on with the simulated provider. */
  get settings(): SsoChange {
    const { issuer, clientId, clientSecret } = this.cloud.oidc;
    return { isEnabled: true, oidcIssuer: issuer, oidcClientId: clientId, oidcClientSecret: clientSecret };
  }

  configure({ sso }: Instance, change: SsoChange = {}) {
    return sso.configure({ ...this.settings, ...change }, undefined, ADMINISTRATOR, ORIGIN);
  }

  /** Reasons of the rejected sign-ins, the last one last. */
  refusals(): string[] {
    return this.events
      .filter(({ type }) => type === "user.signInRefused")
      .map(({ details }) => [details!.reason, details!.code].filter(Boolean).join(" "));
  }
}

/** Azurite with an account for each test of a file, and a simulated cloud with its identity provider. */
export async function startDeployments(
  tests = 40,
): Promise<{ next(): Deployment; stop(): Promise<void>; cloud: Cloud }> {
  const accounts = Array.from({ length: tests }, (_, at) => `sso${at}`);
  const [azurite, { cloud }]: [TestStorage, { cloud: Cloud }] = await Promise.all([
    openStorage(accounts),
    liveIn({ company: { subscriptions: [] } }),
  ]);
  let used = 0;
  return {
    cloud,
    next: () => new Deployment(azurite.connectionString(accounts[used++]!), cloud),
    stop: async () => void (await Promise.all([azurite.stop(), cloud.stop()])),
  };
}

/** A browser that starts a sign-in and returns from the provider as the chosen person. */
export async function browse({ sso }: Instance, person: string, returnUrl?: string): Promise<Arrival> {
  const redirection = await sso.begin(returnUrl, ORIGIN, HERE);
  const back = new URL(await new ProviderVisitor().choose(redirection.location, person));
  return arrivalOf(redirection, back);
}

export function arrivalOf(redirection: Redirection, back: URL): Arrival {
  return {
    protocol: "oidc",
    parameters: back.searchParams,
    requestId: back.searchParams.get("state") ?? undefined,
    cookie: redirection.cookies[0]!.value,
    userAgent: "a browser",
  };
}

export const complete = ({ sso }: Instance, arrival: Arrival): Promise<Redirection> =>
  sso.complete(arrival, ORIGIN, HERE);

/** Returns the value of the session's cookie. */
export async function signIn(instance: Instance, person: string, at = instance): Promise<string> {
  const { cookies } = await complete(at, await browse(instance, person));
  return cookies[0]!.value;
}

/** Returns the user of a session's cookie on this instance. */
export async function whoIs({ access }: Instance, cookie: string): Promise<Actor | undefined> {
  const found = await access.authenticate({ kind: "session", cookie });
  return found instanceof Problem ? undefined : found;
}

/** Returns the code of the problem that the work throws. */
export const problemOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "none",
    (error: unknown) => (error instanceof Problem ? error.code : String(error)),
  );
