import { randomBytes, randomUUID, scryptSync } from "node:crypto";
import { SignJWT } from "jose";
import { createServices, type Services } from "../../functions/services.ts";
import { createAccess } from "../../shared/access/access.ts";
import { createPasswords, type Passwords } from "../../shared/access/passwords.ts";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import type { Role } from "../../shared/platform/http/endpoint.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import type { RowKeys } from "../../shared/platform/storage/signing.ts";
import { useManagedIdentity } from "../azure/live-cloud.ts";
import type { Service } from "./service.ts";

/**
 * Hashes with the smallest parameters of scrypt. The hash names them, so that the service needs no measurable time to verify it,
 * instead of a fifth of a second.
 */
const quickPasswords: Passwords = {
  ...createPasswords({ randomness: systemRandomness() }),
  async hash(password) {
    const salt = randomBytes(16);
    const hash = scryptSync(password.normalize("NFKC"), salt, 32, { N: 2, r: 8, p: 1 });
    const [saltText, hashText] = [salt, hash].map((bytes) => bytes.toString("base64").replace(/=+$/, ""));
    return `$scrypt$ln=1,r=8,p=1$${saltText}$${hashText}`;
  },
};

/**
 * Creates users in the storage of a running service, like the project's command line does. The API needs a license for that.
 *
 * @param services - Those of `servicesOf`, if the test has them.
 */
export async function createUsers(
  service: Service,
  users: readonly { username: string; password: string; role: Role }[],
  services?: Services,
): Promise<void> {
  const { settings, signInLimiter, ...modules } = services ?? (await servicesOf(service));
  const passwordSettings = () => settings.values();
  const access = createAccess({ ...modules, limiter: signInLimiter, passwordSettings, passwords: quickPasswords });
  for (const user of users) await access.users.create(user, { actor: "system", requestId: randomUUID() });
}

/**
 * Creates the modules of the app in this process, with the identity that reads the key of signed rows.
 *
 * @param settings - Environment variables in addition to those of the service.
 */
export async function servicesOf(service: Service, settings: Record<string, string> = {}): Promise<Services> {
  await useManagedIdentity(service.cloud);
  return createServices(loadConfig({ ...service.environment, ...settings }));
}

/** Returns the keys with which the service signs rows, for modules that a test creates in this process. */
export async function rowKeysOf(service: Service): Promise<RowKeys> {
  await useManagedIdentity(service.cloud);
  const config = loadConfig(service.environment);
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  return keyVaultRowKeys(createServiceKeyVault({ config, identity: createIdentity(config), log })!, systemRandomness());
}

/** Changes the user's sessions in storage as if the user had sent no request for this many milliseconds. */
export async function leaveSessionsUnused(service: Service, username: string, milliseconds: number): Promise<void> {
  const { tables } = await servicesOf(service);
  const earlier = (instant: string) => new Date(Date.parse(instant) - milliseconds).toISOString();
  await tables.modify(User, USERS_PARTITION, username, (user) => ({
    ...user!,
    sessions: user!.sessions!.map((session) => ({ ...session, idleEndsAt: earlier(session.idleEndsAt) })),
  }));
}

/** Returns the first key of a `kid:base64` list. */
export function signingKey(ring: string): { kid: string; key: Buffer } {
  const entry = ring.split(",")[0]!;
  const colon = entry.indexOf(":");
  return { kid: entry.slice(0, colon), key: Buffer.from(entry.slice(colon + 1), "base64") };
}

/**
 * Returns an access token like those that the service issues, without a sign-in. Each token has an id of its own, so it can be
 * revoked separately.
 *
 * @param username - The user need not exist. The service rejects a token whose user does not exist.
 * @param change - Replaces claims, header members or the signing key, for tests of tokens that the service must reject.
 */
export async function makeToken(
  service: Service,
  username: string,
  change: {
    claims?: Record<string, unknown>;
    header?: Record<string, unknown>;
    key?: Uint8Array;
  } = {},
): Promise<string> {
  const { kid, key } = signingKey(service.environment.JWT_SIGNING_KEYS!);
  // Not rounded, like the times in the service's own tokens.
  const nowSeconds = Date.now() / 1000;
  return await new SignJWT({
    iss: "credential-lifecycle",
    aud: "credential-lifecycle-api",
    sub: username,
    jti: randomUUID(),
    iat: nowSeconds,
    exp: nowSeconds + 3600,
    ...change.claims,
  })
    .setProtectedHeader({ alg: "HS256", kid, typ: "JWT", ...change.header })
    .sign(change.key ?? key);
}
