import { randomBytes, scrypt } from "node:crypto";
import { TableClient, TableServiceClient } from "@azure/data-tables";
import { afterAll, beforeAll } from "vitest";
import { type Access, createAccess } from "../../shared/access/access.ts";
import { createPasswords, type Derive } from "../../shared/access/passwords.ts";
import { type Audit, createAudit } from "../../shared/audit/audit.ts";
import type { AuditEntry } from "../../shared/audit/entry.ts";
import type { Actor, Caller } from "../../shared/platform/http/endpoint.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { createRateLimiter, type Limits } from "../../shared/platform/http/rate-limit.ts";
import { type Clock, type Logger, systemRandomness } from "../../shared/platform/runtime.ts";
import type { RowKeys } from "../../shared/platform/storage/signing.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import type { SettingValues } from "../../shared/settings/definitions.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

// Starts instances (processes) of the access module on real tables (Azurite), with a clock that the test controls.

/** A clock that only the test advances. */
export class TestClock implements Clock {
  private time = Date.parse("2026-11-21T10:00:00.000Z");
  now(): Date {
    return new Date(this.time);
  }
  /** Returns a clock that is this number of milliseconds ahead of another clock (behind it if negative). */
  static ahead(other: Clock, milliseconds: number): Clock {
    return { now: () => new Date(other.now().getTime() + milliseconds) };
  }
  pass(milliseconds: number): void {
    this.time += milliseconds;
  }
}

// Factors, for example `5 * MINUTES` is five minutes in milliseconds.
export const SECONDS = 1000;
export const MINUTES = 60_000;

/** A caller who has not signed in, at an IP address. */
export const callerAt = (address: string): Caller => ({ actor: "anonymous", address, requestId: "test" });
export const CALLER = callerAt("192.0.2.1");

/** Creates a random signing key for access tokens. @param kid - The key's ID. */
export const signingKey = (kid: string) => ({ kid, key: new Uint8Array(randomBytes(32)) });

/** The bootstrap administrator of each deployment. */
export const ADMIN = { username: "Admin", password: "correct horse battery" };

type AccessConfig = Parameters<typeof createAccess>[0]["config"];

export interface Instance {
  access: Access;
  audit: Audit;
  /** Returns the number of password hashes that this instance has computed. */
  derivationCount(): number;
}

/** One storage account, and any number of instances of the service that use it. */
export class Deployment {
  readonly clock = new TestClock();
  readonly config: AccessConfig = {
    JWT_SIGNING_KEYS: [signingKey("k1")],
    JWT_ISSUER: "issuer",
    JWT_AUDIENCE: "audience",
    BOOTSTRAP_ADMIN_USERNAME: ADMIN.username,
    BOOTSTRAP_ADMIN_PASSWORD: ADMIN.password,
    SSO_TOKEN_MAX_IDLE_DAYS: 30,
  };
  readonly logLines: string[] = [];
  readonly connectionString: string;

  constructor(connectionString: string) {
    this.connectionString = connectionString;
  }

  /** Starts an instance. Without options it has the deployment's configuration and clock. */
  start(
    options: {
      config?: Partial<AccessConfig>;
      clock?: Clock;
      limits?: Limits;
      audit?: Partial<Audit>;
      /** Connection string of a proxy in front of the storage account. */
      connectionString?: string;
      derive?: Derive;
      /** Returns whether single sign-on assigns the roles of its users. */
      roleMapped?: () => Promise<boolean>;
      /** Keys that encrypt the secrets of authenticator apps. Without them, users can't add one. */
      secondFactorKeys?: RowKeys;
      requireSecondFactor?: SettingValues["requireSecondFactor"];
    } = {},
  ): Instance {
    // 0 turns a limit off.
    const { clock = this.clock, limits = { perMinute: 0, perHour: 0 }, derive = deriveQuickly } = options;
    const write = (message: string, fields?: object) => void this.logLines.push(`${message} ${JSON.stringify(fields)}`);
    const log: Logger = { debug: write, info: write, warn: write, error: write };
    const randomness = systemRandomness();
    const tables = createTables({ connectionString: options.connectionString ?? this.connectionString }, { log });
    const audit = {
      ...createAudit({
        tables,
        clock,
        randomness,
        log,
        config: { AUDIT_SIGNING_KEYS: undefined, AUDIT_MINIMUM_RETENTION_DAYS: 90 },
      }),
      ...options.audit,
    };
    let derivations = 0;
    const passwords = createPasswords({
      randomness,
      derive: (password, salt, parameters) => {
        derivations += 1;
        return derive(password, salt, parameters);
      },
    });
    const access = createAccess({
      tables,
      clock,
      randomness,
      audit,
      log,
      passwords,
      config: { ...this.config, ...options.config },
      limiter: createRateLimiter({ tables, clock, limits, name: "signIn" }),
      ...(options.roleMapped && { roleMapped: options.roleMapped }),
      secondFactorKeys: options.secondFactorKeys,
      passwordSettings: async () => ({
        requirePasswordChange: false,
        unusedPasswordDays: 14,
        requireSecondFactor: options.requireSecondFactor ?? "none",
      }),
    });
    return { access, audit, derivationCount: () => derivations };
  }

  /** Returns the audit entries of one type, newest first. */
  async auditEntries(type: string): Promise<AuditEntry[]> {
    const page = { limit: 1000, offset: 0, cursor: undefined };
    const { items } = await this.start().audit.list({ eventType: type }, page);
    return items;
  }

  /** Deletes all rows of all tables. */
  async deleteAllRows(): Promise<void> {
    const options = { allowInsecureConnection: true };
    for await (const { name } of TableServiceClient.fromConnectionString(this.connectionString, options).listTables()) {
      const client = TableClient.fromConnectionString(this.connectionString, name!, options);
      for await (const { partitionKey, rowKey } of client.listEntities()) {
        await client.deleteEntity(partitionKey!, rowKey!);
      }
    }
  }

  /** Returns all rows of all tables as JSON. */
  async allRows(): Promise<string> {
    const options = { allowInsecureConnection: true };
    const rows: unknown[] = [];
    for await (const { name } of TableServiceClient.fromConnectionString(this.connectionString, options).listTables()) {
      const client = TableClient.fromConnectionString(this.connectionString, name!, options);
      for await (const row of client.listEntities()) rows.push(row);
    }
    return JSON.stringify(rows);
  }
}

/** Derives a hash with weak scrypt parameters, because the service's parameters take 100 ms each time. */
export const deriveQuickly: Derive = (password, salt) =>
  new Promise((resolve, reject) => {
    scrypt(password, salt, 32, { N: 2, r: 1, p: 1 }, (error, hash) => (error ? reject(error) : resolve(hash)));
  });

/**
 * Starts Azurite before the tests of a file and stops it after them.
 *
 * @param accounts - The number of storage accounts: one for each test and each repetition of a test.
 * @returns a function that returns the deployment of the next storage account.
 */
export function useDeployments(accounts = 48): () => Deployment {
  const names = Array.from({ length: accounts }, (_, index) => `access${index}`);
  let azurite: TestStorage;
  let usedAccounts = 0;
  beforeAll(async () => {
    azurite = await openStorage(names);
  });
  afterAll(() => azurite?.stop());
  return () => new Deployment(azurite.connectionString(names[usedAccounts++]!));
}

/** The request that changes the user's own password and keeps the API tokens. */
export const passwords = (currentPassword: string, newPassword: string) => ({
  currentPassword,
  newPassword,
  apiTokens: false,
});

/** Authenticates an access token or API token on an instance. */
export async function authenticateToken(
  { access }: Instance,
  token: string,
): Promise<{ kind: "valid"; actor: Actor } | { kind: "invalid" }> {
  const result = await access.authenticate({ kind: "bearer", token });
  return result instanceof Problem ? { kind: "invalid" } : { kind: "valid", actor: result };
}
