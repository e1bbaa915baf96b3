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
import { ADMIN, CALLER, callerAt, deriveQuickly, signingKey } from "../access/instances.ts";
import { configFor, startTestCloud } from "../azure/live-cloud.ts";
import { ProviderVisitor } from "../support/provider-visitor.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

export { ADMIN, CALLER, callerAt };

// Starts instances of single sign-on (SSO) on real tables and a simulated identity provider, and plays the browser of a
// sign-in.

/** The service's public address. To browsers it is another site than the provider's. */
export const ORIGIN = "http://localhost:7071";
export const ADMINISTRATOR = { ...CALLER, actor: ADMIN.username, role: "admin" as const };

/** One instance of the service with the parts that signing in needs. */
export interface Instance {
  access: Access;
  sso: Sso;
  tables: Tables;
}

export interface InstanceOptions {
  tier?: Tier;
  config?: Partial<Config>;
  /** Connection string of a proxy in front of the storage account. */
  connectionString?: string;
  /** Replaces the DNS resolver. */
  resolve?: (host: string) => Promise<{ address: string; family: number }[]>;
}

/**
 * A storage account and an identity provider that several instances share. `pass` advances the service's clock, not the
 * provider's.
 */
export class Deployment {
  readonly connectionString: string;
  readonly cloud: Cloud;
  readonly events: AuditEvent[] = [];
  readonly logLines: string[] = [];
  readonly #signingKeys = [signingKey("k1")];
  #advancedMs = 0;
  readonly clock = { now: () => new Date(Date.now() + this.#advancedMs) };

  constructor(connectionString: string, cloud: Cloud) {
    this.connectionString = connectionString;
    this.cloud = cloud;
  }

  pass(milliseconds: number): void {
    this.#advancedMs += milliseconds;
  }

  start(options: InstanceOptions = {}): Instance {
    const { tier = "pro" } = options;
    const { clock, cloud } = this;
    const write = (message: string, fields?: object) => void this.logLines.push(`${message} ${JSON.stringify(fields)}`);
    const log: Logger = { debug: write, info: write, warn: write, error: write };
    const randomness = systemRandomness();
    const tables = createTables({ connectionString: options.connectionString ?? this.connectionString }, { log });
    const append = async (event: AuditEvent) => void this.events.push(event);
    const audit = { append, refused: append } as unknown as Audit;
    const config = {
      ...configFor(cloud),
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
      passwords: createPasswords({ randomness, derive: deriveQuickly }),
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
      signInLimiter: createRateLimiter({ tables, clock, limits, name: "ssoSignIn" }),
      callLimiter: createRateLimiter({ tables, clock, limits, name: "calls" }),
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

  /** Turns on SSO with the simulated provider on an instance, with changes by a test. */
  configure({ sso }: Instance, change: SsoChange = {}) {
    return sso.configure({ ...this.settings, ...change }, undefined, ADMINISTRATOR, ORIGIN);
  }

  /** Returns the reasons of rejected sign-ins, oldest first: the reason and, if there is one, the detailed code. */
  rejectionReasons(): string[] {
    return this.events
      .filter(({ type }) => type === "user.signInRefused")
      .map(({ details }) => [details!.reason, details!.code].filter(Boolean).join(" "));
  }
}

/** Starts a simulated cloud with its identity provider. Each of its deployments has a storage account of its own. */
export async function startDeployments(): Promise<{
  next(): Promise<Deployment>;
  stop(): Promise<void>;
  cloud: Cloud;
}> {
  const { cloud } = await startTestCloud({ company: { subscriptions: [] } });
  const storages: TestStorage[] = [];
  return {
    cloud,
    async next() {
      const storage = await openStorage();
      storages.push(storage);
      return new Deployment(storage.connectionString(), cloud);
    },
    stop: async () => void (await Promise.all([...storages.map((storage) => storage.stop()), cloud.stop()])),
  };
}

/** Starts a sign-in, chooses a person at the provider, and returns what the browser then sends to the callback. */
export async function browse({ sso }: Instance, person: string, returnUrl?: string): Promise<Arrival> {
  const redirection = await sso.begin(returnUrl, ORIGIN, CALLER);
  const callbackUrl = new URL(await new ProviderVisitor().choose(redirection.location, person));
  return arrivalOf(redirection, callbackUrl);
}

/**
 * Returns what a browser sends to the callback.
 *
 * @param redirection - The response that started the sign-in, with the cookie that binds it to the browser.
 * @param callbackUrl - The URL to which the provider redirected the browser.
 */
export function arrivalOf(redirection: Redirection, callbackUrl: URL): Arrival {
  return {
    protocol: "oidc",
    parameters: callbackUrl.searchParams,
    requestId: callbackUrl.searchParams.get("state") ?? undefined,
    cookie: redirection.cookies[0]!.value,
    userAgent: "a browser",
  };
}

/** Lets an instance handle the callback of a browser. */
export const complete = ({ sso }: Instance, arrival: Arrival): Promise<Redirection> =>
  sso.complete(arrival, ORIGIN, CALLER);

/** Signs a person in, and returns the value of the session's cookie. `atInstance` handles the callback. */
export async function signIn(instance: Instance, person: string, atInstance = instance): Promise<string> {
  const { cookies } = await complete(atInstance, await browse(instance, person));
  return cookies[0]!.value;
}

/** Authenticates a session's cookie on an instance. Undefined if it is not valid. */
export async function authenticateSession({ access }: Instance, cookie: string): Promise<Actor | undefined> {
  const result = await access.authenticate({ kind: "session", cookie });
  return result instanceof Problem ? undefined : result;
}

/** Returns the code of the problem with which a call is rejected, or "none". */
export const problemOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => "none",
    (error: unknown) => (error instanceof Problem ? error.code : String(error)),
  );
